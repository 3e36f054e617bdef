#!/bin/sh
# Table 1 of the paper, ours beside the printed numbers: scripts/table1.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 1 --runs "${1:-results/runs/paper}" "$@"
