#!/bin/sh
# Tokens per case by trajectory length, as PDF, PNG and CSV.
# Give the folder of runs; options may follow:
#   scripts/figure_tokens.sh results/runs/paper --out results/figures
agentsys figure tokens "${@:-results/runs/paper}"
