"""AgentDojo's own sentences for two of its defenses, taken from the installed package when they are needed.

The presets of this harness speak in their own words. What models are told is part of a defense, so a row
that is compared with published runs needs the words those runs were made with (`wording: package`). They are
read out of agentdojo's objects and so are exactly those of the installed version.
"""

from __future__ import annotations

from typing import Literal

PackageWording = Literal["own", "package"]
"""Whose sentences a defense uses: this project's, or agentdojo's."""


def package_tool_filter_question() -> str:
    """The question that `tool_filter` asks the model before it begins."""
    from agentdojo.agent_pipeline.agent_pipeline import TOOL_FILTER_PROMPT  # 4 s of imports

    return str(TOOL_FILTER_PROMPT)


def package_withheld_notice() -> str:
    """The text in place of a tool result that a detector flagged."""
    from agentdojo.agent_pipeline.pi_detector import PromptInjectionDetector
    from agentdojo.types import text_content_block_from_string

    (block,) = PromptInjectionDetector().transform([text_content_block_from_string("")])
    return str(block["content"])
