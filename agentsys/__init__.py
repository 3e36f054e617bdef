"""agentsys: a research harness for defenses of LLM agents against indirect prompt injection.

What lives here: the types that cross rooms (`contracts`, `errors`) and the rooms themselves
(`defense`, `models`, `benchmarks`, `attacks`, `runs`, `analysis`). Importing this package is
cheap on purpose: AgentDojo and the vendors' SDKs are imported only where they are used.
"""

__version__ = "0.1.0"
