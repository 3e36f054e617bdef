"""`Melon`: masked re-execution (Zhu et al., ICML 2025) as a defense.

What differs from the authors' code (kaijiezhu11/MELON), and why. Where a difference can change a
decision, the preset `melon_compat` sets the reference's way:

* Every tool result of a blocked step is taken out, its error text too; the reference takes out the
  newest one's content, and leaves its siblings standing (`redact`).
* The masked pass reads error texts; in the reference an instruction in one is invisible to it
  (`show_errors`).
* A call of which no argument counts keeps its whole name; the reference writes `send_emai)` (`call_style`).
* The configured threshold is the one that is used; the reference takes one and compares with 0.8.
* A bank belongs to one task. The reference keeps it in a mutable default argument, so that calls banked
  in one task block the next in the same process; that is mended in both presets, or results would depend
  on the order of cases. A second run of the pipeline after an empty answer starts a new bank for the
  same reason.
* Contents are blocks everywhere, so that AgentDojo's own loader reads blocked runs.
* A failure of the masked pass or of the embedder never executes the call: the case is recorded as an
  error, or, with `on_failure: block`, the step is blocked.
* Vectors are asked for only where a comparison takes place, once per text and many at a time; the
  reported similarity is the largest, not the first above the threshold. Decisions are the same.
* MELON-Aug (in the paper, not in the code) is `repeat_request: true`: the request is repeated in the
  original pass only.
* Prompts, notice and placeholder are our own words; the demonstration's report tool answers (the paper's
  form), where the code has an empty output.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import MAX_ROUNDS, default_system_message, tool_loop
from baselines.defense_bases import AgentDefense
from baselines.melon.embedders import EMBEDDERS, Embedder, build_embedder
from baselines.melon.guarded_turn import ROLES, GuardedTurn, MelonSettings, resolve_threshold
from baselines.melon.prompts import PROMPTS

KEY_ARGUMENTS = {"send_email": ("recipients",), "send_money": ("recipient", "amount")}
"""The reference's: whom a mail or a payment goes to counts, what is written on it does not."""
THRESHOLDS = {"openai": 0.8, "char_ngrams": 0.7}
"""The published one, and the one fitted to published calls (docs/baselines/melon.md)."""


class Melon(AgentDefense):
    """Asks for each next step again without the user's request; a call proposed both times stops the run.

    Args:
        name: The defense's name in configs, records and tables.
        embedder: `openai`, `char_ngrams` (offline), the dotted path of a class of one's own, or an object.
        threshold: Cosine above which (strictly) two calls are the same; a number, or one per embedder.
        openai: Options of `OpenAIEmbeddings`.
        key_arguments: Tool -> arguments that alone count; None: the reference's.
        call_style: `joined`, or the reference's `trimmed` (see `call_text`).
        show_errors: Whether the masked pass reads error texts.
        redact: The part that a block takes out: `step` or the reference's `newest`.
        on_failure: The meaning of a failed masked pass or embedding: `error` or `block`.
        repeat_request: Whether the user's request is repeated after each round of results (MELON-Aug).
        skip_last_masked: Whether the masked pass is spared where no call is proposed, which ends the run.
        max_rounds: Most rounds of tool calls.

    Raises:
        ConfigError: If an option has a value it cannot have.

    Source: arXiv 2502.05174; github.com/kaijiezhu11/MELON.
    """

    roles = ROLES
    texts = PROMPTS

    def __init__(
        self,
        name: str = "melon",
        *,
        embedder: str | Embedder = "openai",
        threshold: float | Mapping[str, float] | None = None,
        openai: Mapping[str, Any] | None = None,
        key_arguments: Mapping[str, Any] | None = None,
        max_rounds: int = MAX_ROUNDS,
        **options: Any,
    ) -> None:
        self.name = name
        counted = KEY_ARGUMENTS if key_arguments is None else key_arguments
        self.settings = check_options(MelonSettings, "melon", {**options, "key_arguments": counted})
        self.threshold = THRESHOLDS if threshold is None else threshold
        self.max_rounds = max_rounds
        self._openai = dict(openai or {})
        self._chosen = embedder
        self._built = None if isinstance(embedder, str) else embedder
        self._lock = threading.Lock()
        if embedder in EMBEDDERS or not isinstance(self.threshold, Mapping):
            # The name of a class of one's own, under which its threshold stands, is known once it is built.
            resolve_threshold(str(embedder), self.threshold)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The plain agent whose every turn after a tool result is guarded.

        Raises:
            ConfigError: If the embedder cannot be built, e.g. for want of its key.
        """
        embedder = self._load_embedder()
        turn = GuardedTurn(model, embedder, resolve_threshold(embedder.name, self.threshold), self.settings)
        return tool_loop(
            model,
            default_system_message(suite),
            name=f"{model.name}-{self.name}",
            turn=turn,
            max_rounds=self.max_rounds,
        )

    def ready(self) -> None:
        """Look whether the embedder can be built.

        Raises:
            Unavailable: For want of its key.
        """
        self._load_embedder()

    def rehearsed(self) -> Melon:
        """The same defense with the offline embedder in OpenAI's place, for simulated models."""
        if self._chosen != "openai":
            return self
        twin = Melon(self.name, embedder="char_ngrams", threshold=self.threshold, max_rounds=self.max_rounds)
        twin.settings = self.settings
        return twin

    def description(self) -> str:
        """Say how a step is asked twice, and which calls are compared."""
        keys = "; ".join(f"{tool}: {', '.join(args)}" for tool, args in self.settings.key_arguments.items())
        taken = {"step": "all tool results of the step are", "newest": "the newest tool result is"}
        repeat = (
            " After each round of results the request is stated again, in the ordinary pass only."
            if self.settings.repeat_request
            else ""
        )
        return (
            "One agent reads the request and every tool result raw, in one conversation. After each round of"
            " tool results the model is asked twice for its next step: once as usual, and once in a masked"
            " conversation in which a neutral task takes the place of the user's request. A call that comes"
            " out of the masked pass follows from the results alone. It is kept in a bank for the rest of the"
            " case. If a call of the ordinary pass is as similar to one in the bank as the threshold"
            f" ({self._describe_threshold()}) says, by the cosine of the embeddings of their texts, the case is stopped"
            f" and {taken[self.settings.redact]} taken out. Of some tools only certain arguments are compared"
            f" ({keys or 'none'}). So calls that the results cause only together with the user's own request"
            f" are not found.{repeat}"
        )

    def _describe_threshold(self) -> str:
        if isinstance(self.threshold, Mapping):
            return ", ".join(f"{name} {value}" for name, value in self.threshold.items())
        return str(self.threshold)

    def _load_embedder(self) -> Embedder:
        """The embedder, built when the first case needs it: listing, showing and serving need no key."""
        with self._lock:
            if self._built is None:
                self._built = build_embedder(str(self._chosen), self._openai)
            return self._built
