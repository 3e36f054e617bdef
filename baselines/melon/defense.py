"""`Melon`: masked re-execution (Zhu et al., ICML 2025) as a defense.

What differs from the authors' code (kaijiezhu11/MELON), and why: docs/baselines/melon.md. Where a difference
can change a decision, the preset `melon_compat` sets the reference's way.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import MAX_ROUNDS, defended_loop
from baselines.defense_bases import AgentDefense
from baselines.melon.embedders import EMBEDDERS, Embedder, build_embedder
from baselines.melon.guarded_turn import PROMPTS, ROLES, GuardedTurn, MelonSettings, resolve_threshold

KEY_ARGUMENTS = {"send_email": ("recipients",), "send_money": ("recipient", "amount")}
"""The reference's: whom a mail or a payment goes to counts, what is written on it does not."""
THRESHOLDS = {"openai": 0.8, "char_ngrams": 0.7}
"""The published one, and the one fitted to published calls (docs/baselines/melon.md)."""


class Melon(AgentDefense):
    """Asks for each next step again without the user's request; a call proposed both times stops the run.

    Args:
        embedder: `openai`, `char_ngrams` (offline), the dotted path of a class of one's own, or an object.
        threshold: Cosine above which (strictly) two calls are the same; a number, or one per embedder.
        openai: Options of `OpenAIEmbeddings`.
        key_arguments: Tool -> arguments that alone count; None: the reference's.
        call_style: `joined`, or the reference's `trimmed`: a call of which no argument counts loses the end
            of its name, `send_emai)`.
        show_errors: Whether the masked pass reads error texts.
        redact: The part that a block takes out: `step` or the reference's `newest`.
        on_failure: The meaning of a failed masked pass or embedding: `error` or `block`.
        repeat_request: Whether the user's request is repeated after each round of results (MELON-Aug).
        skip_last_masked: Whether the masked pass is spared where no call is proposed, which ends the run.
        max_rounds: Most rounds of tool calls.

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
        """The plain agent whose every turn after a tool result is guarded."""
        embedder = self._load_embedder()
        turn = GuardedTurn(model, embedder, resolve_threshold(embedder.name, self.threshold), self.settings)
        return defended_loop(model, suite, self.name, turn=turn, max_rounds=self.max_rounds)

    def ready(self) -> None:
        """Look whether the embedder can be built."""
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
        settings = self.settings
        keys = "; ".join(f"{tool}: {', '.join(args)}" for tool, args in settings.key_arguments.items())
        threshold = str(self.threshold)
        if isinstance(self.threshold, Mapping):
            threshold = ", ".join(f"{name} {value}" for name, value in self.threshold.items())
        taken = {"step": "all tool results of the step are", "newest": "the newest tool result is"}
        repeat = " After each round of results the request is stated again, in the ordinary pass only."
        return (
            "One agent reads the request and every tool result raw, in one conversation. After each round of"
            " tool results the model is asked twice for its next step: once as usual, and once in a masked"
            " conversation in which a neutral task takes the place of the user's request. A call that comes"
            " out of the masked pass follows from the results alone. It is kept in a bank for the rest of the"
            " case. If a call of the ordinary pass is as similar to one in the bank as the threshold"
            f" ({threshold}) says, by the cosine of the embeddings of their texts, the case is stopped and"
            f" {taken[settings.redact]} taken out. Of some tools only certain arguments are compared"
            f" ({keys or 'none'}). So calls that the results cause only together with the user's own request"
            f" are not found.{repeat if settings.repeat_request else ''}"
        )

    def _load_embedder(self) -> Embedder:
        """The embedder, built when the first case needs it: listing, showing and serving need no key."""
        with self._lock:
            if self._built is None:
                self._built = build_embedder(str(self._chosen), self._openai)
            return self._built
