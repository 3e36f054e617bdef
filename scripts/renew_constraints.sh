#!/usr/bin/env bash
# Write constraints.txt, constraints-lowest.txt and requirements-hashes.txt anew, by uv's resolver; their heads stay.
# Then: `make test`, `make test-lowest`, `make test-newest`, and look at what json-repair reads otherwise (docs/baselines/drift.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
    uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate pyproject.toml "$@"
}

# $1: the file; standard input: its lines. Comments at its head are kept.
write() {
    local lines
    lines=$(cat)
    { sed -n '/^#/!q;p' "$1"; printf '%s\n' "$lines"; } >"$1.new"
    mv "$1.new" "$1"
}

extras=()
for extra in dev docs litellm mcp middleware notebooks parquet; do extras+=(--extra "$extra"); done
compile "${extras[@]}" | write constraints.txt
compile "${extras[@]}" --resolution lowest-direct | write constraints-lowest.txt
compile --generate-hashes -c constraints.txt | write requirements-hashes.txt
