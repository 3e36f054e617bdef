"""Injection vectors: which of them a user task meets, and how a text is written into one.

AgentDojo puts what an attack writes between double quotes in a YAML file, which folds line breaks and ends
at a double quote. A text that is to survive is written with YAML's escapes for both: the file stays
AgentDojo's, and so does the benchmark's name. Where texts are put in as they are, nothing is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from threading import Lock
from typing import TypeVar

import yaml
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatToolResultMessage

from agentsys.abilities import HasInjectionMode
from agentsys.contracts import NotInjectable, Suite, UserTask

# AgentDojo keeps 128 answers for all suites and attacks together, fewer than one grid has, does not
# keep refusals, and may work out one answer in several threads. This is the function underneath.
_AGENTDOJO_RULE = BaseAttack.get_injection_candidates.__wrapped__
_Result = TypeVar("_Result")
TOOL_PLACE = "tool:"
"""Begins the name of a place in a tool, where an attack's text stands in no vector of the environment."""


def drop_tool_places(written: Mapping[str, str]) -> dict[str, str]:
    """The texts that stand in injection vectors."""
    return {place: text for place, text in written.items() if not place.startswith(TOOL_PLACE)}


def cache_per_task(work: Callable[[Suite, UserTask], _Result]) -> Callable[[Suite, UserTask], _Result]:
    """Work something out once per user task of a suite object; safe to use from many threads.

    By identity, like AgentDojo: a task's id means another task in another version. Suite and task are kept
    beside the answer so that their identities are not given to others.
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
    """The vectors whose text an agent that follows the ground truth is shown.

    Raises:
        NotInjectable: If there is none.
    """
    found = _find_vectors(suite, user_task)
    if not found:
        raise NotInjectable(f"{suite.name} {user_task.ID} shows no injection vector.")
    return list(found)


@cache_per_task
def _find_vectors(suite: Suite, user_task: UserTask) -> tuple[str, ...]:
    try:
        return tuple(_AGENTDOJO_RULE(BaseAttack(suite, GroundTruthPipeline(None)), user_task))
    except ValueError as error:
        if "is not injectable" in str(error):
            return ()
        raise


def run_ground_truth(
    suite: Suite, user_task: UserTask, texts: Mapping[str, str]
) -> list[ChatToolResultMessage]:
    """What tools return to one who follows a user task's ground truth, with texts in some injection vectors.

    Raises:
        Exception: What the suite raises if a text breaks its environment.
    """
    environment = user_task.init_environment(suite.load_and_inject_default_environment(dict(texts)))
    truth = GroundTruthPipeline(user_task)
    messages = truth.query(user_task.PROMPT, FunctionsRuntime(suite.tools), environment)[3]
    return [message for message in messages if message["role"] == "tool"]


def make_canary(vector: str) -> str:
    """One word, so that no formatter breaks it over two lines; ends so that `x_1` is not met in `x_10`."""
    return f"<CANARY---{vector}--->"


EXACT_INJECTION = "exact"
"""The way of injecting in which a model reads what was written."""
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def has_yaml_environment(suite: Suite) -> bool:
    """Whether a suite's environment is a YAML file that injections are written into."""
    return not (isinstance(suite, HasInjectionMode) and suite.injection == EXACT_INJECTION)


def escape_for_suite(suite: Suite, text: str) -> str:
    """What an attack has to write so that a model reads `text`, letter by letter."""
    return escape_yaml(text) if has_yaml_environment(suite) else text


def unescape_for_suite(suite: Suite, written: str) -> str:
    """What a model reads of a written text; the text itself where it would break the environment's file."""
    return unescape_yaml(written) if has_yaml_environment(suite) else written


def escape_yaml(text: str) -> str:
    """The text as it stands inside double quotes in YAML, on one line."""
    middle = "".join(_escape_character(character) for character in text)
    # A line of the file may begin or end here: spaces there would be folded away.
    inner = middle.strip(" ")
    if not inner:
        return "\\x20" * len(middle)
    before, after = middle.index(inner), len(middle) - len(inner) - middle.index(inner)
    return "\\x20" * before + inner + "\\x20" * after


def unescape_yaml(written: str) -> str:
    """The text that YAML reads between double quotes; the text itself where that cannot be read."""
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
