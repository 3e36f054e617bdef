#!/bin/sh
# Table 3 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table3.sh results/runs/paper --format latex --out table3.tex
agentsys table 3 "${@:-results/runs/paper}"
