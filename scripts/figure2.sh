#!/bin/sh
# Figure 2 of the paper: attacks on ASB with their controls, a panel per mode, as PDF, PNG and CSV.
# The runs: agentsys run experiment=figure2 (with model=simulated: without a key).
# Give the folder of runs; options may follow:
#   scripts/figure2.sh results/runs/paper --out results/figures
agentsys figure 2 "${@:-results/runs/paper}"
