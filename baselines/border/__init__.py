"""The tool border: where an agent's calls go out to the tools, and results come back.

A `BorderFilter` may rewrite or refuse calls before the tools run, and rewrite results before the agent reads
them. `elements` applies filters in a plain tool loop, `runtime` around the tools of any agent, and `defense`
makes the plain agent with one filter. Filters themselves live with their defenses (`baselines.detectors`,
`baselines.firewall`, ...).
"""
