"""Serving: any `ChatModel` on loopback, behind OpenAI's chat completions. `serve` starts a server.

Nothing here knows which model answers: a scripted one for dry runs and tests, or the defended agents of
`agentsys_plugins.serve`.
"""

from agentsys_plugins.serve.served_model.model_server import Server, serve

__all__ = ["Server", "serve"]
