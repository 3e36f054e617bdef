"""Tool-result parsing: the agent reads the data that a model took out of a result, and not the result.

Rebuilt from arXiv 2601.04795. Data are declared before a result is seen and taken out of it afterwards
(`ResultParser`); words that would trigger a tool call are found by letting them (`ToolCallCheck`). No isolation, no
validator, no policy: the control for what AgentSys has besides. See docs/baselines/tool_result_parsing.md.
"""

from agentsys_plugins.rivals.result_parsing.defense import ToolResultParsing

__all__ = ["ToolResultParsing"]
