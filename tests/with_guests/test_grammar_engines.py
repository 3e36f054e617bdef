"""What servers' grammar engines admit under the schemas that go out: all three the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import venv
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, EmailStr, Field, NaiveDatetime

import agentsys.defense.privileges as privileges
import agentsys_plugins.rivals.firewall as firewall
from agentsys.defense.sanitizer import SANITIZER_CONTRACT
from agentsys.defense.validator import VALIDATOR_CONTRACT
from agentsys.models.tool_schema import make_enforceable_schema
from baselines.camel.suite_world import add_answer_flag

pytestmark = pytest.mark.slow

ENGINES = ("xgrammar", "llguidance", "llama.cpp")
PACKAGES = ("xgrammar==0.2.8", "llguidance==1.9.1", "apache-tvm-ffi==0.1.15.post2", "numpy", "pydantic")
SOURCES = "llama-cpp-python==0.3.36"
"""Holds llama.cpp's sources: of its wheels and xllamacpp's, the one needs compiling, the other holds models to a
schema with llguidance."""
_COMPILED = [
    *(f"common/{name}.cpp" for name in ("json-schema-to-grammar", "json-schema", "json", "trie", "unicode")),
    *(f"src/{name}.cpp" for name in ("llama-grammar", "unicode", "unicode-data")),
]
_FOLDERS = ("common", "src", "include", "vendor", "ggml/include")
_SUPPORT = Path(__file__).parents[1] / "support" / "grammar_engines"

Asked = tuple[Any, str]
"""A schema, and a text."""
Ask = Callable[[Sequence[Asked]], list[dict[str, Any]]]


def run_or_skip(what: str, *command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{what}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The engines, in an environment of their own."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("llama.cpp's converter is compiled, and there is no g++")
    folder = tmp_path_factory.mktemp("engines")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "-q", "--disable-pip-version-check")
    run_or_skip("no engines", *pip, "install", "--no-deps", *PACKAGES[:3])
    run_or_skip("no engines", *pip, "install", *PACKAGES[3:])
    run_or_skip("no sources", *pip, "download", "--no-deps", "--no-binary", ":all:", SOURCES, "-d", folder)
    with tarfile.open(next(folder.glob("llama_cpp_python*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    program = folder / "llama_cpp"
    # What is not reached, most of the library, is left out.
    flags = ("-std=c++17", "-O0", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-w")
    includes = [f"-I{source / one}" for one in (".", *_FOLDERS)]
    sources = [_SUPPORT / "llama_cpp.cpp", *(source / one for one in _COMPILED)]
    subprocess.run([compiler, *flags, *includes, *sources, "-o", program], check=True)

    def ask_engines(asked: Sequence[Asked]) -> list[dict[str, Any]]:
        lines = "\n".join(json.dumps(one) for one in asked)
        command = [python, _SUPPORT / "ask_engines.py", program]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask_engines


def of_one(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TIME = of_one({"type": "string", "format": "date-time"})
OPTIONAL = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}
NESTED = {"$defs": {"X": of_one(WHOLE)}}
AS_THEY_COME: list[tuple[Asked, tuple[Any, ...]]] = [
    # A time without a zone cannot be written.
    ((TIME, '{"a":"2026-05-01T10:00:00"}'), (False, False, False)),
    ((TIME, '{"a":"2026-05-01T10:00:00Z"}'), (True, True, True)),
    ((of_one(TEXT), '{"a":"x","b":1}'), (False, True, False)),
    ((of_one({"type": "number", "minimum": 5}), '{"a":4.5}'), (False, False, True)),
    ((of_one({"allOf": [TEXT]}), '{"a":"x"}'), (True, True, False)),
    ((of_one({"oneOf": [{"type": "number"}, WHOLE]}), '{"a":1}'), (True, "refuses the schema", True)),
    ((of_one({"anyOf": [{"$ref": "#"}, WHOLE]}), '{"a":1}'), (True, True, "refuses the schema")),
    ((of_one({"$ref": "#/$defs/X", **TEXT}, **NESTED), '{"a":{"a":1}}'), (True, "refuses the schema", True)),
    ((of_one(True), '{"a":1}'), (True, True, "refuses the schema")),
    ((OPTIONAL, '{"b":"x","a":"y"}'), (False, False, True)),
]
"""What each engine answers to schemas as they come, in the order of `ENGINES`."""
REWRITTEN: list[tuple[Asked, bool]] = [
    ((TIME, '{"a":"2026-05-01T10:00:00"}'), True),
    ((TIME, '{"a":"2026-05-01T10:00:00Z"}'), True),
    ((of_one(TEXT), '{"a":"x","b":1}'), False),
    ((of_one(TEXT, additionalProperties=True), '{"a":"x","b":1}'), True),
    ((of_one({"type": "number", "minimum": 5}), '{"a":4.5}'), True),
    ((of_one({"type": "string", "pattern": "x", "minLength": 3}), '{"a":"y"}'), True),
    ((of_one({"type": "array", "items": WHOLE, "uniqueItems": True}), '{"a":[1,1]}'), True),
    ((of_one({"type": "array", "items": WHOLE}), '{"a":["x"]}'), False),
    ((of_one({"allOf": [TEXT]}), '{"a":"x"}'), True),
    ((of_one({"allOf": [TEXT]}), '{"a":1}'), False),
    ((of_one({"allOf": [TEXT, {"minLength": 1}]}), '{"a":"x"}'), True),
    ((of_one({"oneOf": [{"type": "number"}, WHOLE]}), '{"a":1}'), True),
    ((of_one({"oneOf": [{"type": "number"}, WHOLE]}), '{"a":"x"}'), False),
    ((of_one({"anyOf": [{"$ref": "#"}, WHOLE]}), '{"a":1}'), True),
    ((of_one({"$ref": "#/$defs/X", **TEXT}, **NESTED), '{"a":{"a":1}}'), True),
    ((of_one({"$ref": "#/$defs/X"}, **NESTED), '{"a":{"a":"x"}}'), False),
    ((of_one(True), '{"a":[1,{"b":null}]}'), True),
    ((of_one({"type": "array", "items": True}), '{"a":[1]}'), True),
    ((of_one({"enum": ["x", 1, None]}), '{"a":null}'), True),
    ((of_one({"const": "x"}), '{"a":"y"}'), False),
    ((of_one({"type": ["string", "null"]}), '{"a":null}'), True),
    ((of_one({"type": ["string", "null"]}), '{"a":1}'), False),
    ((of_one({"type": "object", "additionalProperties": WHOLE}), '{"a":{"k":1}}'), True),
    ((of_one({"type": "object", "additionalProperties": WHOLE}), '{"a":{"k":"x"}}'), False),
    ((OPTIONAL, '{"b":"x"}'), True),
    ((OPTIONAL, '{"b":"x","a":"y"}'), True),
    ((OPTIONAL, '{"a":"y"}'), False),
    (({"type": "object", "properties": {"a": TEXT}, "required": ["b"]}, '{"b":1,"a":"x"}'), True),
    (({"properties": {"a": TEXT}}, "3"), False),
    (({"type": "array", "items": TEXT}, '["x"]'), True),
]


def test_engines_differ_about_schemas_as_they_come(ask: Ask) -> None:
    answers = ask([asked for asked, _ in AS_THEY_COME])
    seen = [
        (asked, tuple(of[name] for name in ENGINES))
        for (asked, _), of in zip(AS_THEY_COME, answers, strict=True)
    ]
    assert seen == AS_THEY_COME


def test_engines_enforce_what_is_sent_alike(ask: Ask) -> None:
    answers = ask([(make_enforceable_schema(schema), text) for (schema, text), _ in REWRITTEN])
    for (asked, admitted), seen in zip(REWRITTEN, answers, strict=True):
        assert seen == dict.fromkeys(ENGINES, admitted), asked


class Kind(BaseModel):
    """A class of a program with every type that there is."""

    at: NaiveDatetime
    of: datetime
    on: date
    till: time
    long: timedelta
    to: EmailStr
    how: Literal["by day", "by night"]
    many: set[int]
    each: dict[str, float]
    more: list[str] | None
    few: int = Field(ge=1, le=9)


VALUE = {
    "at": "2026-05-01T10:00:00", "of": "2026-05-01T10:00:00", "on": "2026-05-01", "till": "10:00:00", "long": "PT1H",
    "to": "a@b.org", "how": "by day", "many": [1, 2], "each": {"x": 0.5}, "more": None, "few": 3,
    "have_enough_information": True,
}  # fmt: skip


def test_what_our_own_questions_ask_for_can_be_written_under_each_engine(ask: Ask) -> None:
    shape = add_answer_flag(Kind)
    own: list[Asked] = [(shape.model_json_schema(), json.dumps(VALUE))]
    shape.model_validate_json(own[0][1])
    contracts: list[Any] = [SANITIZER_CONTRACT, firewall.SANITIZER_CONTRACT, privileges.PRIVILEGES_CONTRACT]
    own += [(each.schema, answer) for each in contracts if each.schema for _, answer in each.examples]
    own += [(VALIDATOR_CONTRACT.schema, json.dumps(answer)) for _, answer in VALIDATOR_CONTRACT.examples]
    assert len(own) > 3
    asked = [(make_enforceable_schema(schema), text) for schema, text in own]
    for (schema, text), seen in zip(asked, ask(asked), strict=True):
        assert seen == dict.fromkeys(ENGINES, True), (schema, text)
