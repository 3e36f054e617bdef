"""IsolateGPT (Wu et al., NDSS 2025; SecGPT): every app in a spoke of its own, and a hub between them.

`defense` is the entry. For each task a `hub` asks for an `app_plan`, starts the first spoke, answers what
spokes ask for, and asks the user for permission. docs/baselines/isolategpt.md lists every decision and
deviation.
"""

from baselines.isolategpt.defense import IsolateGPT

__all__ = ["IsolateGPT"]
