#!/bin/sh
# Table 5 of the paper, ours beside the printed numbers: scripts/table5.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 5 --runs "${1:-results/runs/paper}" "$@"
