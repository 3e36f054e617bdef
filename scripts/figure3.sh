#!/bin/sh
# Figure 3 of the paper: benign utility against security, quality against cost, as PDF, PNG and CSV.
# Give the folder of runs; options may follow:
#   scripts/figure3.sh results/runs/paper --out results/figures
agentsys figure 3 "${@:-results/runs/paper}"
