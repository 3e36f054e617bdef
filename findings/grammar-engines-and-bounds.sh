#!/usr/bin/env bash
# Guess: a keyword of JSON Schema that an engine takes is enforced.
# Seen: outlines-core and lm-format-enforcer take minimum, multipleOf, uniqueItems and not, and let values through that break
# them; llguidance enforces the first two and refuses schemas with the others.
# Where: outlines_core's compiled json_schema module and lmformatenforcer/jsonschemaparser.py read the keywords they know
# and pass over the rest.
# Why it matters: "the server enforces the schema" is written in many defenses' descriptions. A bound on an amount holds on
# one server, is decoration on the next, and is an error of every case on the third.
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


compare([
    (of_one({"type": "integer", "minimum": 5}), '{"a":4}', (False, True, True)),
    (of_one({"type": "integer", "multipleOf": 5}), '{"a":7}', (False, True, True)),
    (of_one({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}), '{"a":[1,1]}', ("refuses the schema", True, True)),
    (of_one({"type": "string", "not": {"const": "x"}}), '{"a":"x"}', ("refuses the schema", True, True)),
])
PYTHON
