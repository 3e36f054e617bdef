#!/bin/sh
# Table 7 of the paper with our numbers beside the printed ones. Give the folder of runs; options may follow:
#   scripts/table7.sh results/runs/paper --format latex --out table7.tex
agentsys table 7 "${@:-results/runs/paper}"
