#!/bin/sh
# Benign utility against planted targets, a curve per family of defenses, as PDF, PNG and CSV.
# The runs: agentsys run experiment=guarantees. Give their folder; options may follow:
#   scripts/figure_guarantees.sh results/runs/guarantees --out results/figures
agentsys figure guarantees "${@:-results/runs/guarantees}"
