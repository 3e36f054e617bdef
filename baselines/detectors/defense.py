"""`DetectorDefense`: the plain agent, whose tool results a detector has read first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from baselines.border.defense import BoundaryDefense
from baselines.border.filter import BoundaryFilter
from baselines.detectors.detector import Detector
from baselines.detectors.element import ABORTED, NOTICE, DetectInjections, DetectionOptions
from baselines.package_wording import package_withheld_notice


class DetectorDefense(BoundaryDefense):
    """A defense from any detector; a subclass with a YAML makes it a config.

    Args:
        name: The defense's name in configs, records and tables.
        detector: Gives the detector when a case is built, so that composing a config loads no model.
        threshold: A result is flagged if its safety (1 - probability of an injection) is below this.
        mode: The unit that the detector reads, see `DetectionOptions`.
        on_injection: The consequence of a flagged text, see `DetectionOptions`.
        read_errors: Whether it reads error texts, too.
        wording: The source of the notice in a withheld result's place: `own`, or the installed `package`
            agentdojo's.

    Raises:
        ConfigError: If an option has a value it cannot have.
    """

    def __init__(self, name: str, detector: Callable[[], Detector], **options: Any) -> None:
        self.name = name
        self.detector = detector
        self.options = check_options(DetectionOptions, name, options)

    @property
    def notice(self) -> str:
        """The text in a withheld result's place."""
        return package_withheld_notice() if self.options.wording == "package" else NOTICE

    @property
    def needs_conversation(self) -> bool:
        """Whether it reads the conversation, or ends it."""
        return self.options.mode == "conversation" or self.options.on_injection == "abort"

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The detector between the tools and the agent.

        Raises:
            ConfigError: If the detector cannot be loaded.
        """
        return [DetectInjections(self.detector(), self.options, self.notice)]

    def description(self) -> str:
        """Say what is read, by which rule it is flagged, and what follows."""
        reads = {
            "message": "each tool result by itself",
            "conversation": "each tool result together with all that was said before it",
        }[self.options.mode]
        then = {
            "withhold": "a fixed notice takes the place of the result and the agent goes on",
            "abort": "the whole case is ended",
        }[self.options.on_injection]
        errors = "are read as well" if self.options.read_errors else "are not read"
        threshold = f"{self.options.threshold:g}"
        return (
            "One agent reads the request and the tool results in one conversation. Between the tools and its"
            f" next step a detector, {self.detector_description}, reads {reads}. It gives the probability that there is an"
            f" injection; a result is flagged if 1 minus that is below {threshold}, and then {then}."
            f" Error texts of failed calls {errors}. A result that is not flagged reaches the agent unchanged"
            " and unmarked. The detector knows neither the user's request nor what the agent does next. No"
            " call is checked before it runs."
        )

    @property
    def detector_description(self) -> str:
        """Name the detector in a few words."""
        return "which gives a text a number"

    def prompts(self) -> dict[str, str]:
        """Every text this defense shows to a model, by name."""
        return {"notice": self.notice, "aborted": ABORTED}
