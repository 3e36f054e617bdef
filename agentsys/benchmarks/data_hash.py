"""Which data a result was made with: AgentDojo's versions pin tasks, not data."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from agentdojo.task_suite.task_suite import read_suite_file

from agentsys.contracts import Suite

_FILES = ("environment.yaml", "injection_vectors.yaml")


def hash_suite_data(suite: Suite) -> str:
    """SHA-256, in hex, of a suite's environment data and injection vectors.

    Includes are resolved first, so a change in any included file shows. A suite that builds its
    environment without data files is hashed by the environment it builds.
    """
    try:
        texts = [read_suite_file(suite.name, file, suite.data_path) for file in _FILES]
    except FileNotFoundError:
        environment = suite.load_and_inject_default_environment({}).model_dump(mode="json")
        vectors = suite.get_injection_vector_defaults()
        texts = [json.dumps(part, sort_keys=True) for part in (environment, vectors)]
    return _hash_texts(*texts)


@lru_cache(maxsize=64)
def _hash_texts(*texts: str) -> str:
    """The hash of a suite's texts. Each of its cases is labelled with it, and the texts stay the same."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))  # so that text cannot move between the files
        digest.update(encoded)
    return digest.hexdigest()
