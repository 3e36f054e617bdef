#!/usr/bin/env bash
# Installs guards and writes docs/league.md anew: scripts/league.sh FILE_OF_TEXTS [PAGE [NAME...]]; all of them by default.
# Gates are replayed where all guards are asked for.
set -euo pipefail
texts="${1:?Give the file of texts, e.g. ../shared/data/guards/texts.jsonl.gz}"
page="${2:-docs/league.md}"
names=("${@:3}")
((${#names[@]})) || names=(all)
new="$(mktemp -d)"
trap 'rm -rf "$new"' EXIT
# Everything above the mark is written by hand.
head="$(sed '/^<!-- Below:/q' "$page")"
agentsys guards add "${names[@]}"
agentsys guards score "${names[@]}" --texts "$texts" --format markdown --out "$new/score.md"
touch "$new/replay.md"
[[ ${names[0]} != all ]] || agentsys guards replay all --format markdown --out "$new/replay.md"
{ printf '%s\n\n' "$head"; cat "$new/score.md"; echo; cat "$new/replay.md"; } > "$new/page.md"
cp "$new/page.md" "$page"
