#!/bin/sh
# Table 4 of the paper, ours beside the printed numbers: scripts/table4.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 4 --runs "${1:-results/runs/paper}" "$@"
