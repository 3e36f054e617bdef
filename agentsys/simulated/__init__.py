"""The simulated model: a deterministic, scripted agent for dry runs, CI and worst-case analysis.

Not an LLM; every record made with it says so. It answers a request from the request alone: what
it may know is a `Playbook` (ground truths, handed in by the benchmark), what it may use is what
stands in the messages. Roles other than a plain agent are played by handlers that the defense
brings along (`SimulatedRole`).
"""
