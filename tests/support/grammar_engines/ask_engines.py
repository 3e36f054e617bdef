"""Ask grammar engines whether they admit a text under a schema; runs in an environment of its own.

    python ask_engines.py LLAMA_CPP_PROGRAM < QUESTIONS

Each line of QUESTIONS is a JSON list of a schema and a text on one line. Prints a JSON object a line: engine -> true,
false, or "refuses the schema".
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import json
import subprocess
import sys
from unittest.mock import MagicMock

import tvm_ffi  # noqa: F401 - looks for torch, and has to find that there is none

# xgrammar imports both, three gigabytes, for masks of tokens that nobody asks for here.
sys.modules["torch"] = sys.modules["transformers"] = MagicMock()
import xgrammar  # noqa: E402
from llguidance import LLMatcher, LLTokenizer  # noqa: E402
from xgrammar.testing import _is_grammar_accept_string  # noqa: E402

REFUSED = "refuses the schema"
TOKENIZER = LLTokenizer("byte")


def ask_xgrammar(schema: str, text: str) -> bool | str:
    try:
        return bool(_is_grammar_accept_string(xgrammar.Grammar.from_json_schema(schema), text))
    except RuntimeError:
        return REFUSED


def ask_llguidance(schema: str, text: str) -> bool | str:
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_json_schema(schema))
    if matcher.is_error():
        return REFUSED
    tokens = TOKENIZER.tokenize_str(text)
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


questions = [(json.dumps(schema), text) for schema, text in map(json.loads, sys.stdin)]
lines = "".join(f"{schema}\n{text}\n" for schema, text in questions)
asked = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True)
for (schema, text), of_llama_cpp in zip(questions, asked.stdout.splitlines(), strict=True):
    answers = {
        "xgrammar": ask_xgrammar(schema, text),
        "llguidance": ask_llguidance(schema, text),
        "llama.cpp": json.loads(of_llama_cpp),
    }
    print(json.dumps(answers))
