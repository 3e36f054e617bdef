"""A program that works on other people's JSON and schemas, and that `json_check` ends when it takes too long.

It reads frames (length, seconds, kind, JSON) and answers each with a sentence, null where all is well, and the CPU
seconds that it took, as JSON. Its own clock ends work in Python and in `re`; whoever waits for it kills it where that
is not heard. Nothing of agentsys is imported: it is to be there at once.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, BinaryIO

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY

HEAD = struct.Struct("!Idc")
"""Bytes of the JSON, CPU seconds that it may take, kind of work."""
LENGTH = struct.Struct("!I")
MAX_LEVELS = 100
"""Levels of nesting that a schema, or what it is applied to, may have."""
MAX_VALUES = 100_000
"""JSON values that a request's body may hold."""
TOO_LONG = "this takes more than"
"""Beginning of what is said of work that was ended: next time it may come to its end."""
_MAX_MEMORY = 2 * 2**30
_MAX_TOLD = 400


class _TimeUp(BaseException):
    pass


def check_schemas(named: list[tuple[str | None, Any]]) -> str | None:
    """What is wrong with the schemas of tools, which are objects', or of an answer, which has no tool's name."""
    for tool, schema in named:
        whose = "the schema of response_format" if tool is None else f"the schema of tool {tool!r}"
        if _count_levels(schema) > MAX_LEVELS:
            return f"{whose} is nested more than {MAX_LEVELS} levels deep"
        if not isinstance(schema, dict) or (
            tool is not None and schema.get("type", "object") not in ("object", ["object"])
        ):
            what = "the schema of response_format" if tool is None else f"the parameters of tool {tool!r}"
            return f"{what} must be a JSON object" if tool is None else f"{what} must be an object's schema"
        if not isinstance(schema.get("$schema", ""), str):
            return f"{whose} is not valid: $.$schema must be a text"
        try:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            return f"{whose} is not valid: {error.json_path}: {error.message}"
        except Exception as error:  # noqa: BLE001 - of the library, for what its own schemas let pass
            return f"{whose} is not valid: {type(error).__name__}: {error}"
    return None


def check_values(asked: Mapping[str, Any]) -> str | None:
    """What is wrong with values by a schema."""
    if _count_levels(asked["values"]) > MAX_LEVELS:
        return f"these values are nested more than {MAX_LEVELS} levels deep"
    try:
        wrong = best_match(_build_validator(asked["schema"]).iter_errors(asked["values"]))
    except Exception as error:  # noqa: BLE001 - a pattern that is none, a reference to nowhere or without end
        return f"the tool's schema cannot be applied: {type(error).__name__}"
    if wrong is None:
        return None
    place = "".join(f"[{part!r}]" for part in wrong.absolute_path)
    return f"{place} {wrong.message}".strip()


@lru_cache(maxsize=256)
def _build_validator(raw: str) -> Validator:
    schema = json.loads(raw)
    # The registry of the dialects alone: a reference to elsewhere is never fetched.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=REGISTRY)


def count_values(body: object) -> str | None:
    """Whether JSON holds more values than a request's body may."""
    count, waiting = 0, [body]
    while waiting:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return f"the body holds more than {MAX_VALUES} JSON values" if count > MAX_VALUES else None


def _count_levels(value: object) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(part, level + 1) for part in below]
    return deepest


KINDS: Mapping[bytes, Callable[[Any], str | None]] = {
    b"s": check_schemas,
    b"v": check_values,
    b"c": count_values,
}


def answer(kind: bytes, seconds: float, raw: bytes) -> str | None:
    """Do one piece of work, and say what is wrong."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            told = KINDS[kind](json.loads(raw))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TimeUp:
        return f"{TOO_LONG} {seconds:g} s to check"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"this cannot be read as JSON: {error}"[:_MAX_TOLD]
    return told if told is None or len(told) <= _MAX_TOLD else f"{told[:_MAX_TOLD]}..."


def _end_work(*_: object) -> None:
    raise _TimeUp


def main(asked: BinaryIO, told: BinaryIO) -> None:
    """Answer until nothing more is asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks.
    signal.signal(signal.SIGVTALRM, _end_work)
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    sys.setrecursionlimit(5000)
    while head := asked.read(HEAD.size):
        size, seconds, kind = HEAD.unpack(head)
        raw, began = asked.read(size), time.process_time()
        told_of_it = answer(kind, seconds, raw)
        reply = json.dumps([told_of_it, time.process_time() - began]).encode()
        told.write(LENGTH.pack(len(reply)) + reply)
        told.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
