#!/bin/sh
# Table 4 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table4.sh results/runs/paper --format latex --out table4.tex
agentsys table 4 "${@:-results/runs/paper}"
