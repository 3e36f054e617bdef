#!/bin/sh
# Table 2 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table2.sh results/runs/paper --format latex --out table2.tex
agentsys table 2 "${@:-results/runs/paper}"
