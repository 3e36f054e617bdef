"""Hash of a suite's data, for records: AgentDojo's versions pin tasks, not data."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from agentdojo.task_suite.task_suite import read_suite_file

from agentsys.contracts import Suite

_FILES = ("environment.yaml", "injection_vectors.yaml")


def hash_suite_data(suite: Suite) -> str:
    """SHA-256, in hex, of a suite's environment data and injection vectors.

    Includes are resolved first, so a change in any included file changes the hash. For a suite without data files the
    environment that it builds is hashed.
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
    """Hash a suite's texts; cached, as every case's record has the hash."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))  # So that moving text between files changes the hash.
        digest.update(encoded)
    return digest.hexdigest()
