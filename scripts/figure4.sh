#!/bin/sh
# Figure 4 of the paper: utility and attack success by the length of the task, as PDF, PNG and CSV.
# Give the folder of runs; options may follow:
#   scripts/figure4.sh results/runs/paper --out results/figures
agentsys figure 4 "${@:-results/runs/paper}"
