"""AutoDojo's caches: texts per injection task, injection vector and variant, optimised by a model.

Source: AutoDojo (arXiv 2606.15057), files `variants/<suite>/<victim>/<defense>/injections.json`. Their field
`model` names the optimiser, never the victim; the victim is the folder's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS_KEY = "injection_tasks"
"""The key by which such a file is known."""
_FOLDER_DEPTH = 3
"""Folders above a file of the published tree: suite, victim, defense."""


@dataclass(frozen=True)
class Provenance:
    """Where a file's texts come from."""

    file: str
    suite: str
    optimiser: str
    victim: str
    """By the folder; `?` where it does not say."""
    defense: str
    iterations: str
    distinct: int
    """Number of distinct texts that can be replayed."""
    unchanged: int
    """Variants that equal the vector's original text: nothing was optimised."""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        made = f"{self.distinct} distinct texts for {self.suite}, optimised by {self.optimiser}"
        against = f"against {self.victim} with {self.defense} ({self.iterations} iterations)"
        return f"{self.file}: {made} {against}; {self.unchanged} more equal the original and are not used"


def is_autodojo(document: object) -> bool:
    """Whether a JSON document has the form of such a cache."""
    return isinstance(document, dict) and TASKS_KEY in document


def autodojo_entries(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    """The optimised texts as entries of a cache file, each with its place in the document.

    Args:
        document: A document for which `is_autodojo` holds.

    Raises:
        ValueError: Naming the place that has another form.
    """
    for where, task, vector, number, text, original in _iterate_variants(document):
        if text != original:
            value = {"injection_task": task, "vector": vector, "variant": number, "text": text}
            yield where, {"suite": document.get("suite"), **value}


def read_provenance(path: Path, document: Mapping[str, Any]) -> Provenance:
    """What a document says of itself, and its folder of it."""
    found = [(text, text == original) for *_, text, original in _iterate_variants(document)]
    folders = path.absolute().parts[-_FOLDER_DEPTH - 1 : -1]
    said = {key: str(document.get(key, "?"))[:60] for key in ("suite", "model", "defense", "iterations")}
    in_tree = len(folders) == _FOLDER_DEPTH and folders[0] == said["suite"]
    return Provenance(
        file=path.name,
        suite=said["suite"],
        optimiser=said["model"],
        victim=folders[1] if in_tree else "?",
        defense=said["defense"],
        iterations=said["iterations"],
        distinct=len({text for text, same in found if not same}),
        unchanged=sum(same for _, same in found),
    )


def _iterate_variants(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int, object, object]]:
    """Place, injection task, vector, number, text and original of every variant."""
    for task, vectors in _check_mapping(document[TASKS_KEY], TASKS_KEY).items():
        for vector, found in _check_mapping(vectors, f"{TASKS_KEY} > {task[:40]!a}").items():
            where = f"{TASKS_KEY} > {task[:40]!a} > {vector[:40]!a}"
            texts = _check_mapping(found, where).get("variants", ())
            if not isinstance(texts, list | tuple):
                raise ValueError(f"{where}: variants is no list of texts")
            for number, text in enumerate(texts):
                yield f"{where} > variant {number}", task, vector, number, text, found.get("original")


def _check_mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: no object")
    return value
