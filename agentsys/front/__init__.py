"""A defense in front of an agent that is not ours: its tools are the client's, its state is the server's.

`serve` starts it for `agentsys serve defense=...`. A conversation runs the defense's pipeline in a thread of
its own; a tool call is handed out as the reply, and the client's result resumes it. What a client resends is
read for one purpose: to find the conversation that it belongs to. `target` has cases of a benchmark for
models: what a client says is the attack's text.
"""
