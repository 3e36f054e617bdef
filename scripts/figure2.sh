#!/bin/sh
# Figure 2 of the paper: attacks on ASB, as PDF, PNG and CSV.
# Give the folder of runs; options may follow:
#   scripts/figure2.sh results/runs/paper --out results/figures
agentsys figure 2 --runs "${@:-results/runs/paper}"
