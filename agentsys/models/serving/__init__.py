"""Serving: any `ChatModel` on loopback, in the wire formats of OpenAI, Anthropic and Gemini.

`serve` starts a server; `Faults` makes it fail on purpose, and repeatably. One file per wire
format turns requests into `ChatRequest` and replies into JSON; nothing here knows which model
answers. For dry runs, tests and measurements: loopback only, no keys, no streaming except
Anthropic's.
"""

from agentsys.models.serving.faults import FaultKind, Faults
from agentsys.models.serving.model_server import Server, serve

__all__ = ["FaultKind", "Faults", "Server", "serve"]
