#!/usr/bin/env bash
# Guess: a server made of llama.cpp enforces a JSON schema by llama.cpp's own grammars (GBNF).
# Seen: xllamacpp's wheel hands every schema on to llguidance; asked for the grammar of one, it gives the schema back in two lines.
# Where: llama.cpp's common/json-schema-to-grammar.cpp does so where it was compiled with LLAMA_USE_LLGUIDANCE, as this wheel was.
# Why it matters: the two differ about optional keys' order, allOf and open objects, so "enforced by llama.cpp" in a paper names
# no engine, and the same model is held to two forms on two builds of one server.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install xllamacpp==2026.10.11549
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from xllamacpp import json_schema_to_grammar

schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
grammar = json_schema_to_grammar(schema)
print("xllamacpp", version("xllamacpp"), repr(grammar))
assert grammar.startswith("%llguidance") and "::=" not in grammar
PYTHON
