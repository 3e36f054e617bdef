#!/bin/sh
# Table 7 of the paper, ours beside the printed numbers: scripts/table7.sh [folder of runs] [--format latex --out FILE ...]
exec agentsys table 7 --runs "${1:-results/runs/paper}" "$@"
