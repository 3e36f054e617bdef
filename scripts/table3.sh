#!/bin/sh
# Table 3 of the paper, ours beside the printed numbers: scripts/table3.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 3 --runs "${1:-results/runs/paper}" "$@"
