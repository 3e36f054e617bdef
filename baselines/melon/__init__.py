"""MELON (Zhu et al., ICML 2025, arXiv 2502.05174): masked re-execution against prompt injection.

After every round of tool results the model is asked twice for its next step: once as usual, once with
the user's request taken away. A call that comes out both times follows from the tool outputs alone.

`defense` puts the agent together and lists what differs from the reference; `guarded_turn` is the guarded
model turn and what its second pass reads; `embedders` turn calls into vectors and compare them.
"""

from baselines.melon.defense import Melon
from baselines.melon.embedders import Embedder

__all__ = ["Embedder", "Melon"]
