#!/bin/sh
# Table 1 of the paper as a figure, as PDF, PNG and CSV.
# Give the folder of runs; options may follow:
#   scripts/figure_table1.sh results/runs/paper --out results/figures
agentsys figure table1 "${@:-results/runs/paper}"
