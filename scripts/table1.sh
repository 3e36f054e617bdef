#!/bin/sh
# Table 1 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table1.sh results/runs/paper --format latex --out table1.tex
agentsys table 1 "${@:-results/runs/paper}"
