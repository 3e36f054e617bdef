#!/bin/sh
# Table 6 of the paper, ours beside the printed numbers: scripts/table6.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 6 --runs "${1:-results/runs/paper}" "$@"
