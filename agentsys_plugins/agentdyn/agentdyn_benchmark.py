"""`AgentDyn`: the benchmark, its three suites loaded from one checkout of its fork of agentdojo.

The fork's package is named `agentdojo`, also in its import statements. Imports of `agentdojo.default_suites` are
redirected to a private package; everything else of agentdojo is the installed one. So the installed package is
unchanged, and two checkouts in one process are independent. A suite is then adapted to the harness: fast to load,
repeatable, and scored as in the fork.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from threading import Lock
from types import CodeType, ModuleType
from typing import Any

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.task_suite.task_suite import read_suite_file
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.python_parser import parse_module
from agentsys.benchmarks.agentdojo import AdaptedSuite
from agentsys.benchmarks.environment_loader import EnvironmentLoader, Injection, parse_injection
from agentsys.benchmarks.repeatable_tools import (
    DEFAULT_CLOCK,
    install_case_clocks,
    install_case_random,
    parse_clock,
)
from agentsys.contracts import Benchmark, InjectionTask, Suite, UserTask
from agentsys.errors import ConfigError, choose_suites, require_known_name
from agentsys.extensions import FETCHED
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.simulated.playbook_index import AlternativeSolution
from agentsys_plugins.agentdyn.agentdyn_plans import make_way_finder
from agentsys_plugins.agentdyn.checkout import (
    AGENTDYN_SUITES,
    SYSTEM_MESSAGES,
    Checkout,
    read_checkout,
)

_PACKAGE = "agentdojo.default_suites"
_CODE = "default_suites"
_LOCK = Lock()
_LOADED: dict[str, Mapping[str, Suite]] = {}
"""Private package -> its suites."""


def load_fork_suites(checkout: Checkout) -> Mapping[str, Suite]:
    """Load the suites of a checkout by name; the same objects for the same files.

    This executes the checkout's Python code, as installing and importing it would.

    Raises:
        ConfigError: If a module fails, or a suite is missing.
    """
    private = make_private_package_name(checkout)
    with _LOCK:
        if private not in _LOADED:
            _LOADED[private] = _import_suites(checkout, private)
        return _LOADED[private]


def make_private_package_name(checkout: Checkout) -> str:
    """Name of the private package of a checkout's modules in `sys.modules`."""
    return f"agentsys_agentdyn_{checkout.digest[:16]}"


def _import_suites(checkout: Checkout, private: str) -> Mapping[str, Suite]:
    # AgentDojo caches texts by path, and the folder may have held other files before.
    read_suite_file.cache_clear()
    finder = _Finder(checkout, private)
    sys.meta_path.append(finder)  # Only during the import, which loads all modules.
    try:
        suites: dict[str, Suite] = {}
        for name in AGENTDYN_SUITES:
            suites[name] = getattr(importlib.import_module(f"{private}.v1.{name}"), f"{name}_task_suite")
            suites[name].data_path = checkout.find_data_folder(name)
        return suites
    except Exception as error:
        for name in [name for name in sys.modules if name.partition(".")[0] == private]:
            del sys.modules[name]
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(
            f"AgentDyn in {checkout.package} cannot be loaded ({reason}); take the commit of"
            " `agentsys fetch agentdyn`, or mend the checkout."
        ) from error
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def __init__(self, checkout: Checkout, private: str) -> None:
        self.checkout, self.private = checkout, private

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != self.private:
            return None
        module_path = "/".join([_CODE, *rest.split(".")]) if rest else _CODE
        is_package = f"{module_path}.py" not in self.checkout.files
        file = f"{module_path}/__init__.py" if is_package else f"{module_path}.py"
        if file not in self.checkout.files and module_path != _CODE:
            return None
        origin = str(self.checkout.package / file)
        loader = _RewritingLoader(self.checkout.files.get(file, b""), origin, self.private)
        spec = ModuleSpec(fullname, loader, origin=origin, is_package=is_package)
        spec.has_location = True
        return spec


class _RewritingLoader(SourceLoader):
    """Loads one module without writing byte code, which would not be the one Python expects there."""

    def __init__(self, source: bytes, origin: str, private: str) -> None:
        self._source, self._origin, self._private = source, origin, private

    def get_filename(self, fullname: str) -> str:
        return self._origin

    def get_data(self, path: str) -> bytes:
        if path != self._origin:
            raise OSError(f"no data but the source of {self._origin}")
        return self._source

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = _ImportRenamer(self._private).visit(parse_module(data, self._origin))
        # dont_inherit: this module's own __future__ import would turn the tools' annotations into strings.
        return compile(tree, self._origin, "exec", dont_inherit=True)


class _ImportRenamer(ast.NodeTransformer):
    """Redirects imports of the fork's own part of the package to the private one."""

    def __init__(self, private: str) -> None:
        self._private = private

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = node.module and self._rename_module(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            alias.name = self._rename_module(alias.name)
        return node

    def _rename_module(self, module: str) -> str:
        own = module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
        return self._private + module[len(_PACKAGE) :] if own else module


def adapt_fork_suite(
    suite: Suite, checkout: Checkout, injection: Injection, *, last_assistant: bool
) -> Suite:
    """Copy a checkout's suite and adapt it; of the suite itself only its tools' clock and random numbers change.

    With `last_assistant`, the answer is the last assistant message, at any position.
    """
    try:
        loader = EnvironmentLoader(suite, injection)
        loader.get_defaults()
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        folder = checkout.find_data_folder(suite.name)
        raise ConfigError(f"The data in {folder} cannot be read ({reason}); take another checkout.") from None
    # Modules of its tools, including those that only other tools use.
    start = f"{make_private_package_name(checkout)}.v1."
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(f"{start}tools.") or (name.startswith(start) and name.endswith(".task_suite"))
    ]
    install_case_clocks(suite, modules)
    install_case_random(modules)
    adapted: Suite = AgentDynSuite.adapt(suite, loader)
    adapted.injection = injection
    adapted.system_message = read_system_message(checkout)
    adapted.last_assistant = last_assistant
    adapted.find_way = make_way_finder(adapted)
    return adapted


class AgentDynSuite(AdaptedSuite):
    """A suite of the fork: tools draw random numbers, ground truths are incomplete, the answer may stand anywhere."""

    draws_at_random = True
    complete_ground_truths = False
    last_assistant: bool
    find_way: Callable[[UserTask | InjectionTask], AlternativeSolution | None]

    def way(self, task: UserTask | InjectionTask) -> AlternativeSolution | None:
        """Return a solution of a task; None if none is known."""
        return self.find_way(task)

    def run_task_with_pipeline(
        self, agent_pipeline: BasePipelineElement, *args: Any, **options: Any
    ) -> tuple[bool, bool]:
        """Run a task as AgentDojo does; with `last_assistant` the conversation ends with the answer."""
        pipeline = EndOnAnswerStep(agent_pipeline) if self.last_assistant else agent_pipeline
        scores: tuple[bool, bool] = super().run_task_with_pipeline(pipeline, *args, **options)  # type: ignore[misc]
        return scores


def read_system_message(checkout: Checkout) -> str:
    """Read the fork's own system message, which also tells the agent not to ask for confirmation.

    Raises:
        ConfigError: If the checkout has none.
    """
    try:
        return str(yaml.safe_load(checkout.files[SYSTEM_MESSAGES])["default"])
    except (KeyError, TypeError, ValueError, yaml.YAMLError):
        raise ConfigError(
            f"{checkout.package / SYSTEM_MESSAGES} has no message named default; take another checkout."
        ) from None


class EndOnAnswerStep(LoopStep):
    """Ends conversations with the last assistant message, from which the fork takes the answer.

    AgentDojo refuses to score a conversation that ends otherwise. The pipeline's own messages are stored unchanged:
    only the scorer sees the repeated message, which makes no calls.
    """

    def __init__(self, pipeline: BasePipelineElement) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name

    def step(self, at: LoopState) -> LoopState:
        """Run the pipeline once.

        Raises:
            Exception: As the pipeline does; the messages of an AbortAgentError end in the same way.
        """
        try:
            after = at.run_element(self.pipeline)
        except AbortAgentError as aborted:
            aborted.messages = end_on_answer(aborted.messages)
            raise
        return replace(after, messages=end_on_answer(after.messages))


def end_on_answer(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Repeat the last assistant message, without calls, at the end if another message is last."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    if last is None or messages[-1]["role"] == "assistant":
        return list(messages)
    return [*messages, ChatAssistantMessage(role="assistant", content=last["content"], tool_calls=None)]


_ANSWERS = ("last_assistant", "last_message")


class AgentDyn(Benchmark):
    """The benchmark, of one checkout.

    Its version is the checkout's commit, so that results of two states of the benchmark, or of AgentDojo and AgentDyn,
    are never averaged. `exact`, and an answer rule other than the fork's, are part of its name.

    Args:
        source: `fetched` (after `agentsys fetch agentdyn`), or the folder of a checkout.
        suites: The suites to offer; None: all three.
        injection: `folded` or `exact` (see agentsys.benchmarks.environment_loader).
        user_name: The user's name, for attacks.
        clock: The time that tools read: the start of each case's clock, or `real`.
        answer: `last_assistant`, as in the fork, or `last_message`, as in AgentDojo, where a conversation that
            ends otherwise is an error.
    """

    def __init__(
        self,
        source: str = FETCHED,
        suites: Sequence[str] | None = None,
        injection: str = "folded",
        user_name: str = "Emma Johnson",
        clock: str = DEFAULT_CLOCK,
        answer: str = "last_assistant",
    ) -> None:
        self.injection = parse_injection(injection)
        self.clock = parse_clock(clock)
        self.user_name = user_name
        self.answer = require_known_name("benchmark.answer", answer, _ANSWERS)
        changes = [value for value in (injection, answer) if value not in ("folded", "last_assistant")]
        self.name = "+".join(["agentdyn", *changes])
        self._names = choose_suites("suite of benchmark.suites", suites, AGENTDYN_SUITES)
        self.checkout = read_checkout(str(source))
        self.version = self.checkout.version
        self._loaded = load_fork_suites(self.checkout)
        self._adapted: dict[str, Suite] = {}
        self._lock = Lock()

    def suite_names(self) -> Sequence[str]:
        """List the offered suites, in the fork's order."""
        return self._names

    def suite(self, name: str) -> Suite:
        """Return a suite, the same object on every call."""
        require_known_name(f"suite of {self.name} {self.version}", name, AGENTDYN_SUITES)
        with self._lock:
            if name not in self._adapted:
                self._adapted[name] = adapt_fork_suite(
                    self._loaded[name],
                    self.checkout,
                    self.injection,
                    last_assistant=self.answer == "last_assistant",
                )
            return self._adapted[name]
