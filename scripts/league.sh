#!/usr/bin/env bash
# Installs every shipped guard and writes docs/league.md anew: scripts/league.sh FILE_OF_TEXTS
set -euo pipefail
texts="${1:?Give the file of texts, e.g. ../shared/data/guards/texts.jsonl.gz}"
page="${2:-docs/league.md}"
new="$(mktemp -d)"
trap 'rm -rf "$new"' EXIT
# Everything above the mark is written by hand.
head="$(sed '/^<!-- Below:/q' "$page")"
agentsys guards add all
agentsys guards score all --texts "$texts" --format markdown --out "$new/score.md"
agentsys guards replay all --format markdown --out "$new/replay.md"
{ printf '%s\n\n' "$head"; cat "$new/score.md"; echo; cat "$new/replay.md"; } > "$new/page.md"
cp "$new/page.md" "$page"
