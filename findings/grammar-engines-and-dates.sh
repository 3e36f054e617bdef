#!/usr/bin/env bash
# Guess: "format": "date-time" in a schema lets a model write the time as 2026-05-01T10:00:00.
# Seen: llguidance admits it with a zone alone, outlines-core with and without one, lm-format-enforcer any text at all;
# llguidance knows that February has no 31st, the others do not.
# Where: each engine's table of formats (llguidance's is compiled; outlines_core's regular expressions; none in lm-format-enforcer).
# Why it matters: pydantic writes this format for naive and aware times alike. A field for a naive time can never be filled on
# a server that enforces with llguidance, and is free text elsewhere: the same extraction task has three difficulties.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install llguidance==1.9.1 outlines-core==0.2.14 lm-format-enforcer==0.11.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import re
from importlib.metadata import version

from llguidance import LLMatcher, LLTokenizer
from lmformatenforcer import JsonSchemaParser
from outlines_core.json_schema import build_regex_from_schema

tokenizer = LLTokenizer("byte")


def llguidance(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    if matcher.is_error():
        return "refuses the schema"
    tokens = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def outlines(schema, text):
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), text) is not None


def enforcer(schema, text):
    parser = JsonSchemaParser(schema)
    for sign in text:
        if sign not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(sign)
    return parser.can_end()


def of_one(schema):
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}


def compare(rows):
    print({name: version(name) for name in ("llguidance", "outlines-core", "lm-format-enforcer")})
    for schema, text, wanted in rows:
        seen = (llguidance(schema, text), outlines(schema, text), enforcer(schema, text))
        print(json.dumps(schema["properties"]), text, seen)
        assert seen == wanted, (schema, text, seen)


time = of_one({"type": "string", "format": "date-time"})
date = of_one({"type": "string", "format": "date"})
compare([
    (time, '{"a":"2026-05-01T10:00:00"}', (False, True, True)),
    (time, '{"a":"2026-05-01T10:00:00Z"}', (True, True, True)),
    (time, '{"a":"tomorrow"}', (False, False, True)),
    (date, '{"a":"2026-02-31"}', (False, True, True)),
])
PYTHON
