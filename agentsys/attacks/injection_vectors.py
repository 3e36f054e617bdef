"""Injection vectors: finds those that a user task shows, and escapes texts for them.

AgentDojo puts an attack's text between double quotes in a YAML file, which folds line breaks and ends at a double
quote. A text that has to arrive unchanged is written with YAML's escapes for both, so that the file, and with it the
benchmark's name, stays AgentDojo's. In suites that inject exactly, nothing is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from threading import Lock
from typing import TypeVar

import yaml
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatToolResultMessage

from agentsys.base.yaml_dump import dump_yaml
from agentsys.contracts import NotInjectable, Suite, UserTask

_Result = TypeVar("_Result")
TOOL_PLACE = "tool:"
"""Prefix of the name of a tool whose description or result holds the text, in place of a vector."""


def drop_tool_places(written: Mapping[str, str]) -> dict[str, str]:
    """Keep only the texts in injection vectors."""
    return {vector: text for vector, text in written.items() if not vector.startswith(TOOL_PLACE)}


def cache_per_task(work: Callable[[Suite, UserTask], _Result]) -> Callable[[Suite, UserTask], _Result]:
    """Cache a function per suite object and user task object; thread-safe.

    Keys are object identities, as in AgentDojo: a task's id means another task in another version. Suite and task
    are kept in the cache so that Python does not reuse their identities.
    """
    known: dict[tuple[int, int], tuple[Suite, UserTask, _Result]] = {}
    lock = Lock()

    @wraps(work)
    def look_up(suite: Suite, user_task: UserTask) -> _Result:
        key = id(suite), id(user_task)
        with lock:
            if key not in known:
                known[key] = suite, user_task, work(suite, user_task)
            return known[key][2]

    return look_up


def find_injectable_vectors(suite: Suite, user_task: UserTask) -> list[str]:
    """List the vectors whose text is shown to an agent that follows the ground truth.

    Raises:
        NotInjectable: If there is none.
    """
    vectors = _find_vectors(suite, user_task)
    if not vectors:
        raise NotInjectable(f"{suite.name} {user_task.ID} shows no injection vector.")
    return list(vectors)


@cache_per_task
def _find_vectors(suite: Suite, user_task: UserTask) -> tuple[str, ...]:
    """Run the ground truth with a mark in every vector, and list the vectors whose mark was shown."""
    # AgentDojo's rule (`BaseAttack.get_injection_candidates`), which leaves out the task's `init_environment`. Its own
    # cache has 128 entries for all suites and attacks, fewer than a grid needs.
    canaries = {vector: make_canary(vector) for vector in suite.get_injection_vector_defaults()}
    environment, runtime = suite.load_and_inject_default_environment(canaries), FunctionsRuntime(suite.tools)
    shown = ""
    for call in user_task.ground_truth(environment):
        value, _ = runtime.run_function(environment, call.function, call.args, raise_on_error=True)
        shown += f"{tool_result_to_str(value, dump_yaml)}\n"
    return tuple(vector for vector, canary in canaries.items() if canary in shown)


def run_ground_truth(
    suite: Suite, user_task: UserTask, texts: Mapping[str, str]
) -> list[ChatToolResultMessage]:
    """Run a user task's ground truth with texts in some vectors, and return the tool messages.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    environment = user_task.init_environment(suite.load_and_inject_default_environment(dict(texts)))
    truth = GroundTruthPipeline(user_task)
    messages = truth.query(user_task.PROMPT, FunctionsRuntime(suite.tools), environment)[3]
    return [message for message in messages if message["role"] == "tool"]


def make_canary(vector: str) -> str:
    """Return a mark for a vector: one word, so that no formatter breaks it, and no prefix of another vector's."""
    return f"<CANARY---{vector}--->"


EXACT_INJECTION = "exact"
"""The injection mode in which a model reads a text exactly as written."""
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def has_yaml_environment(suite: Suite) -> bool:
    """True if injections are written into a YAML file of the suite's environment."""
    return bool(suite.injection != EXACT_INJECTION)


def escape_for_suite(suite: Suite, text: str) -> str:
    """Escape a text so that a model reads it letter by letter."""
    return escape_yaml(text) if has_yaml_environment(suite) else text


def unescape_for_suite(suite: Suite, written: str) -> str:
    """Return a written text as a model reads it; unchanged if it would break the environment's file."""
    return unescape_yaml(written) if has_yaml_environment(suite) else written


def escape_yaml(text: str) -> str:
    """Escape a text for a double-quoted YAML string on one line."""
    middle = "".join(_escape_character(character) for character in text)
    # YAML would fold away spaces at the beginning or end of a line of the file.
    inner = middle.strip(" ")
    if not inner:
        return "\\x20" * len(middle)
    before, after = middle.index(inner), len(middle) - len(inner) - middle.index(inner)
    return "\\x20" * before + inner + "\\x20" * after


def unescape_yaml(written: str) -> str:
    """Parse a text as a double-quoted YAML string; return it unchanged if that fails."""
    if "\\" not in written and "\n" not in written:
        return written
    try:
        read = yaml.safe_load(f'"{written}"')
    except (yaml.YAMLError, ValueError, OverflowError):
        return written
    return read if isinstance(read, str) else written


def _escape_character(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    point = ord(character)
    if point > 0xFFFF:
        return f"\\U{point:08X}"
    return f"\\u{point:04X}" if point > 0xFF else f"\\x{point:02X}"
