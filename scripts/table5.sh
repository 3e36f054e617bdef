#!/bin/sh
# Table 5 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table5.sh results/runs/paper --format latex --out table5.tex
agentsys table 5 "${@:-results/runs/paper}"
