"""IsolateGPT (Wu et al., NDSS 2025; SecGPT): every app in a spoke of its own, and a hub between them.

`defense` is the entry. For each task a `hub` asks for a `plan`, starts the first `spoke` and answers what
spokes ask for in the messages of `protocol`; `permissions` holds the user's answers to its prompts, `apps`
which tools make up an app. docs/baselines/isolategpt.md lists every decision and deviation.
"""

from baselines.isolategpt.defense import IsolateGPT

__all__ = ["IsolateGPT"]
