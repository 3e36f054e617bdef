"""The simulated model: a deterministic, scripted agent for dry runs, CI and worst-case analysis.

Not an LLM; every record made with it says so. It answers a request from the messages alone, with the knowledge of a
`Playbook` (ground truths from the benchmark). Roles other than a plain agent are played by handlers of the defense
(`SimulatedRole`).
"""
