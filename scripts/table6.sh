#!/bin/sh
# Table 6 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table6.sh results/runs/paper --format latex --out table6.tex
agentsys table 6 "${@:-results/runs/paper}"
