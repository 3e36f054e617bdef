"""`DetectorDefense`: the plain agent, whose tool results a detector has read first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from baselines.border.defense import BorderDefense
from baselines.border.filter import BorderFilter
from baselines.detectors.detector import Detector
from baselines.detectors.element import ABORTED, NOTICE, DetectInjections, Mode, OnInjection
from baselines.package_wording import Wording, withheld_notice


class DetectorDefense(BorderDefense):
    """A defense from any detector; a subclass with a YAML makes it a config.

    Args:
        name: The defense's name in configs, records and tables.
        detector: Gives the detector when a case is built, so that composing a config loads no model.
        threshold: A result is flagged if its safety (1 - probability of an injection) is below this.
        mode: The unit that the detector reads, see `DetectInjections`.
        on_injection: The consequence of a flagged text, see `DetectInjections`.
        read_errors: Whether it reads error texts, too.
        wording: The source of the notice in a withheld result's place: `own`, or the installed `package`
            agentdojo's.

    Raises:
        ConfigError: If an option has a value it cannot have.
    """

    forecast_kind = "structural"

    def __init__(
        self,
        name: str,
        detector: Callable[[], Detector],
        *,
        threshold: float = 0.5,
        mode: Mode = "message",
        on_injection: OnInjection = "withhold",
        read_errors: bool = True,
        wording: Wording = "own",
    ) -> None:
        for option, value, known in (
            ("mode", mode, get_args(Mode)),
            ("on_injection", on_injection, get_args(OnInjection)),
            ("wording", wording, get_args(Wording)),
        ):
            if value not in known:
                raise ConfigError(unknown_name(f"{name} {option}", str(value), known))
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise ConfigError(f"{name}: threshold is {threshold!r}; give a number from 0.0 to 1.0.")
        self.name = name
        self.detector = detector
        self.threshold = float(threshold)
        self.mode: Mode = mode
        self.on_injection: OnInjection = on_injection
        self.read_errors = read_errors
        self.wording: Wording = wording

    @property
    def notice(self) -> str:
        """The text in a withheld result's place."""
        return withheld_notice() if self.wording == "package" else NOTICE

    @property
    def needs_conversation(self) -> bool:
        """Whether it reads the conversation, or ends it."""
        return self.mode == "conversation" or self.on_injection == "abort"

    def border(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BorderFilter]:
        """The detector between the tools and the agent.

        Raises:
            ConfigError: If the detector cannot be loaded.
        """
        detect = DetectInjections(
            self.detector(),
            self.threshold,
            self.mode,
            self.on_injection,
            read_errors=self.read_errors,
            notice=self.notice,
        )
        return [detect]

    def description(self) -> str:
        """Say what is read, by which rule it is flagged, and what follows."""
        reads = {
            "message": "each tool result by itself",
            "conversation": "each tool result together with all that was said before it",
        }[self.mode]
        then = {
            "withhold": "a fixed notice takes the place of the result and the agent goes on",
            "abort": "the whole case is ended",
        }[self.on_injection]
        errors = "are read as well" if self.read_errors else "are not read"
        return (
            "One agent reads the request and the tool results in one conversation. Between the tools and its"
            f" next step a detector, {self.detects}, reads {reads}. It gives the probability that there is an"
            f" injection; a result is flagged if 1 minus that is below {self.threshold:g}, and then {then}."
            f" Error texts of failed calls {errors}. A result that is not flagged reaches the agent unchanged"
            " and unmarked. The detector knows neither the user's request nor what the agent does next. No"
            " call is checked before it runs."
        )

    @property
    def detects(self) -> str:
        """Name the detector in a few words."""
        return "which gives a text a number"

    def prompts(self) -> dict[str, str]:
        """Every text this defense shows to a model, by name."""
        return {"notice": self.notice, "aborted": ABORTED}
