"""Finds facts that published files leave out: model and defense by the pipeline's name, ground-truth lengths.

This is the one place where meaning is read out of a name: AgentDojo's form has no fields for it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

from agentsys.records.case_row import UNRECORDED

FALLBACK_VERSION = "v1"
"""Taken where a file names no version or one that is not listed: the files that name none are of v1."""


def find_ground_truth_length(version: str, suite: str, user_task_id: str) -> int | None:
    """Calls in the ground truth of one of AgentDojo's user tasks; of an unknown version `FALLBACK_VERSION`'s.

    Returns:
        None for tasks that AgentDojo does not have (those of forks, injection tasks run alone).
    """
    lengths = _load_lengths()
    in_suite = lengths.get(version.partition(" ")[0], lengths[FALLBACK_VERSION]).get(suite, {})
    found: int | None = in_suite.get(user_task_id)
    return found


@lru_cache(maxsize=1)
def _load_lengths() -> dict[str, Any]:
    """Version -> suite -> user task -> calls. Made by scripts/make_ground_truth_lengths.py."""
    listed: dict[str, Any] = orjson.loads(
        files("agentsys.records").joinpath("data", "ground_truth_lengths.json").read_bytes()
    )
    return listed


NO_DEFENSE = "none"

_DEFENSES = {
    "tool_filter": "tool_filter",
    "repeat_user_prompt": "prompt_sandwiching",
    # AgentDojo's own wording, which `defense=spotlighting` does not use.
    "spotlighting_with_delimiting": "spotlighting_compat",
    "transformers_pi_detector": "protectai",
    "piguard_detector": "piguard",
    "prompt_guard_2_detector": "prompt_guard_2",
    "melon": "melon",
    "drift": "drift",
    "progent": "progent",
    "camel": "camel",
}
"""What agentdojo 0.1.35, AgentDyn and MELON's fork append to a pipeline's name -> our name of the defense."""

_ENDINGS = {**_DEFENSES, **{name: name for name in _DEFENSES.values()}}
"""Our names as well: folders of re-scored records bear them."""

_SUFFIX = re.compile(rf"(?P<model>.+)[-+](?P<defense>{'|'.join(_ENDINGS)})", re.DOTALL | re.IGNORECASE)

_VARIANT = re.compile(
    rf"(?P<model>.+)[-+](?:{'|'.join(_DEFENSES)})_\w+|(?P<dated>.+-(?:\d{{4}}-\d\d-\d\d|\d{{8}}))[-+_].+",
    re.DOTALL | re.IGNORECASE,
)
"""A known defense's ending with more behind it (`-melon_at`), or a model's date with anything behind it."""

RESULT_REPLACING_DEFENSES = frozenset({"protectai", "piguard", "prompt_guard_2", "melon", "drift", "camel"})
"""Defenses that put their own text in a tool result's place before it is stored (or keep results out of the
messages): what the tool returned is then known only where the payload got through."""

NAMELESS_MODELS = frozenset({"local", "vllm_parsed"})
"""What AgentDojo calls a model of one's own server, whichever it is."""

REWORDED_DEFENSES = frozenset({"tool_filter", "melon", "drift", "progent", "camel"})
"""Defenses that ask models, whose published runs were made with other prompts than ours of that name."""


class PublishedName(NamedTuple):
    """The model and the defense that a published pipeline's name tells of."""

    model: str
    defense: str


@lru_cache(maxsize=4096)
def parse_pipeline_name(name: str) -> PublishedName:
    """Model and defense of a pipeline, or of its folder, named as AgentDojo and its forks do.

    Args:
        name: E.g. `gpt-4o-2024-05-13-tool_filter` or `gpt-4o-mini-2024-07-18+camel`.

    Returns:
        Model and our name of the defense. Where a model's date, or a known defense, is followed by something
        that is not known, the defense is `unrecorded`; any other ending stays in the model's name, and the
        defense is then `none`.
    """
    found = _SUFFIX.fullmatch(name)
    if found is not None:
        return PublishedName(found["model"], _ENDINGS[found["defense"].lower()])
    varied = _VARIANT.fullmatch(name)
    if varied is not None:
        return PublishedName(varied["model"] or varied["dated"], UNRECORDED)
    return PublishedName(name, NO_DEFENSE)


@lru_cache(maxsize=4096)
def resolve_pipeline_name(folder: str, stored: PublishedName) -> PublishedName:
    """Settle what folder and file say together: where they disagree, the folder decides.

    Returns:
        A folder whose name ends in no known defense says nothing about the defense: the file's stays. A
        model's name that the folder merely spells as a path allows stays as the file has it.
    """
    told = parse_pipeline_name(folder)
    model = stored.model if _normalize_name(told.model) == _normalize_name(stored.model) else told.model
    if told.defense == UNRECORDED and stored.defense != NO_DEFENSE:
        return PublishedName(model, stored.defense)
    if told.defense == NO_DEFENSE or stored.defense.startswith(f"{told.defense}_"):  # e.g. a part of DRIFT
        return PublishedName(model, stored.defense)
    return PublishedName(model, told.defense)


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())
