#!/bin/sh
# Table 2 of the paper, ours beside the printed numbers: scripts/table2.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 2 --runs "${1:-results/runs/paper}" "$@"
