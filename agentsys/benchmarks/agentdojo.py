"""`AgentDojo`: the benchmark, through its own package; every version, and suites that a fork registers.

One of its fixes, `append_injection`, changes what models read and is part of the benchmark's name. AgentDojo
*replaces* a field's text by an injection. In Banking 0 that text is the bill, with the account and the sum, without
which no agent can pay. In Slack a channel's name is such a field, `External_` and the injection: five user tasks have
to copy the whole payload, letter by letter, to address the channel. Utility under attack was 0 in all 714 published
cases of Banking 0 and Slack 7, 9, 10, 12 and 19. Source: arXiv 2510.05244 (overwritten content), AD#67. With the fix
the field keeps its text and the injection follows it; the channel's name is no vector. Nine Slack user tasks show no
other vector, so they have no attacked cases.

AgentDojo's versions pin tasks, not data: `hash_suite_data` gives records a hash of a suite's data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Literal

import yaml
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite import load_suites
from agentdojo.task_suite.task_suite import TaskSuite, read_suite_file, validate_injections

from agentsys.base.object_import import import_module_of_setting
from agentsys.benchmarks.environment_loader import EnvironmentLoader, Injection, parse_injection
from agentsys.benchmarks.fixes.fix_catalog import FIXES, expand_fixes
from agentsys.benchmarks.fixes.fixed_scores import FixedScores
from agentsys.benchmarks.repeatable_tools import (
    DEFAULT_CLOCK,
    install_case_clocks,
    keep_set_order,
    parse_clock,
)
from agentsys.benchmarks.scoring import SuiteCheck, check_on_copies
from agentsys.benchmarks.traced_tools import with_receipts
from agentsys.contracts import Benchmark, CaseScores, FinishedCase, Suite
from agentsys.errors import choose_suites, require_known_name

IDENTIFIERS: Mapping[str, frozenset[str]] = {"slack": frozenset({"prompt_injection_channel"})}
"""Suite -> vectors whose text is part of a name that calls have to repeat."""

ONLY_IDENTIFIERS: Mapping[str, frozenset[str]] = {
    "slack": frozenset(f"user_task_{number}" for number in (5, 7, 8, 9, 10, 12, 13, 14, 19))
}
"""Suite -> user tasks that show no other vector, in all versions."""


class AppendingLoader:
    """Loads environments through another loader, with each injection appended to the field's own text.

    Identifiers, whose text calls have to repeat, are no vectors.
    """

    def __init__(
        self,
        loader: EnvironmentLoader,
        identifiers: Collection[str],
        injection: Literal["folded", "exact"] = "folded",
    ) -> None:
        self._loader = loader
        self._defaults = {
            vector: text for vector, text in loader.get_defaults().items() if vector not in identifiers
        }
        read = _unescape_default if injection == "exact" else str
        self._kept = {vector: read(text) for vector, text in self._defaults.items()}

    def __deepcopy__(self, memo: object) -> AppendingLoader:
        """Return itself, like the loader it uses."""
        return self

    def get_defaults(self) -> dict[str, str]:
        """Injection vector -> default text, without the identifiers."""
        return dict(self._defaults)

    def load(self, injections: Mapping[str, str]) -> TaskEnvironment:
        """Load a fresh environment; see `EnvironmentLoader.load`."""
        validate_injections(dict(injections), self._defaults)
        return self._loader.load(
            {name: append_injection(self._kept[name], text) for name, text in injections.items()}
        )


def append_injection(field: str, injection: str) -> str:
    """Append an injection to a field's text."""
    return f"{field} {injection}" if field else injection


def _unescape_default(default: str) -> str:
    """Resolve the YAML escapes of a default text, as models read it."""
    return str(yaml.safe_load(f'"{default}"')) if "\\" in default else default


class AgentDojo(Benchmark):
    """The benchmark of the package, and of forks that register suites with it.

    Args:
        version: A version that the package, or one of `modules`, registers: `v1` .. `v1.2.2`.
        suites: The suites to offer; None: all of the version.
        injection: `folded` as in AgentDojo, or `exact` (see agentsys.benchmarks.environment_loader);
            `exact` changes what models read and is part of the benchmark's name.
        user_name: The user's name, for attacks.
        modules: Python modules imported first, so that a fork can register its own suites.
        fixes: Repairs of checks and data (see agentsys.benchmarks.fixes). They do not change official scores;
            fixes that change what models read are part of the benchmark's name.
        clock: The time that tools read: the start of each case's clock, or `real`.
        name: Name of the benchmark in results; suites that are not AgentDojo's need another one.
    """

    def __init__(
        self,
        version: str,
        suites: Sequence[str] | None = None,
        injection: str = "folded",
        user_name: str = "Emma Johnson",
        modules: Sequence[str] = (),
        fixes: Sequence[str] | str = (),
        clock: str = DEFAULT_CLOCK,
        name: str = "agentdojo",
    ) -> None:
        self.injection = parse_injection(injection)
        for module in modules:
            import_module_of_setting(module, "benchmark.modules")
        self.version = version
        self.fixes = expand_fixes(fixes)
        self.clock = parse_clock(clock)
        changes = [injection] if injection != "folded" else []
        changes += [name for name in self.fixes if FIXES[name].changes_runs]
        self.name = "+".join([name, *changes])
        self.user_name = user_name
        # Not `get_suites`, which adds an empty entry for an unknown version.
        table: Mapping[str, Mapping[str, TaskSuite[Any]]] = load_suites._SUITES
        known = [name for name, registered in table.items() if registered]
        self._registered = dict(table[require_known_name("version of agentdojo", version, known)])
        self._names = choose_suites(f"suite of agentdojo {version}", suites, self._registered)
        self._adapted: dict[str, Suite] = {}
        self._lock = Lock()

    def suite_names(self) -> Sequence[str]:
        """List the chosen suites, in the package's order."""
        return self._names

    def suite(self, name: str) -> Suite:
        """Return a suite of this version, the same object on every call.

        It is a copy of the package's, with fast environments and checks on copies, for use wherever AgentDojo takes
        a suite.

        Raises:
            ConfigError: If this version has no such suite.
        """
        require_known_name(f"suite of agentdojo {self.version}", name, self._registered)
        with self._lock:
            if name not in self._adapted:
                self._adapted[name] = adapt_suite(self._registered[name], self.injection, self.fixes)
            return self._adapted[name]


class AdaptedSuite:
    """Makes a suite load fast, check on copies and record its tools' runs; stands before the suite's own class."""

    _loader: EnvironmentLoader | AppendingLoader
    _check_task_result: SuiteCheck

    @classmethod
    def adapt(cls, suite: TaskSuite[Any], loader: EnvironmentLoader | AppendingLoader) -> Any:
        """Copy a suite as one of this class, of its own and of `Suite`.

        The package's own suite, shared in the process, is unchanged, but for the clock of its tools.
        """
        install_case_clocks(suite)
        keep_set_order(suite)
        # `TaskSuite` itself may not stand before `Suite`, which derives from it.
        own = () if type(suite) is TaskSuite else (type(suite),)
        derived: Any = type(type(suite).__name__, (cls, *own, Suite), {})
        adapted = derived.__new__(derived)
        adapted.__dict__ = dict(vars(suite))
        adapted.tools = with_receipts(suite.tools)
        adapted._loader, adapted._check_task_result = loader, check_on_copies(suite._check_task_result)
        return adapted

    def load_and_inject_default_environment(self, injections: Mapping[str, str]) -> TaskEnvironment:
        """Load a fresh environment."""
        return self._loader.load(injections)

    def get_injection_vector_defaults(self) -> dict[str, str]:
        """Injection vector -> default text."""
        return self._loader.get_defaults()


class AgentDojoSuite(AdaptedSuite):
    """A suite of the package, scored by its checks and by fixes."""

    fixed_scores: FixedScores

    def measured(self, finished: FinishedCase) -> CaseScores:
        """The official scores, and the fixed ones as facts."""
        return self.fixed_scores(finished)


def adapt_suite(suite: TaskSuite[Any], injection: Injection = "folded", fixes: tuple[str, ...] = ()) -> Suite:
    """Copy an AgentDojo suite and make it load fast, check on copies, score fixes, and record tools' runs."""
    replacing = EnvironmentLoader(suite, injection)
    appends = "append_injection" in fixes
    identifiers = IDENTIFIERS.get(suite.name, frozenset())
    loader = AppendingLoader(replacing, identifiers, injection) if appends else replacing
    adapted: Suite = AgentDojoSuite.adapt(suite, loader)
    adapted.injection = injection
    adapted.fixed_scores = FixedScores(suite, fixes)
    if appends:
        adapted.without_vectors = ONLY_IDENTIFIERS.get(suite.name, frozenset())
    return adapted


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
