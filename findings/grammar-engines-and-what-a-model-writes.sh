#!/usr/bin/env bash
# Guess: whatever is valid for a schema can be written under it.
# Seen: llguidance and outlines-core admit the properties in the schema's order alone; keys that an open schema does not name
# are admitted by llguidance alone; lm-format-enforcer admits no letter outside ASCII, the others do.
# Where: the three engines' handling of properties, additionalProperties and string characters.
# Why it matters: the order of the fields decides whether a reason is thought before or behind the verdict; a client's open
# object is closed on most servers; and names with an accent cannot be extracted on one of them, so that a value is bent to fit.
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


both = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"], "additionalProperties": False}
opened = {"type": "object", "properties": {"a": {"type": "string"}}}
compare([
    (both, '{"a":"x","b":"y"}', (True, True, True)),
    (both, '{"b":"x","a":"y"}', (False, False, True)),
    (opened, '{"a":"x","c":1}', (True, False, False)),
    (of_one({"type": "string"}), '{"a":"Zoë"}', (True, True, False)),
])
PYTHON
