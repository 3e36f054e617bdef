"""AgentSys itself (the paper's section 5) and nothing else: main agent, workers, gate, validator, sanitizer.

It talks to `agentsys.models` and knows nothing of benchmarks, runs or scores.
"""
