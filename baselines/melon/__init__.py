"""MELON (Zhu et al., ICML 2025, arXiv 2502.05174): masked re-execution against prompt injection.

After every round of tool results the model is asked twice for its next step: once as usual, once with
the user's request taken away. A call that comes out both times follows from the tool outputs alone.

`defense` puts the agent together and lists what differs from the reference; `element` is the guarded
model turn; `masked_conversation` and `prompts` are what the second pass reads, and how it is played offline;
`call_text` and `bank` compare calls; `char_ngrams` and `openai_embeddings` turn them into vectors.
"""

from baselines.melon.defense import Melon
from baselines.melon.embedders import Embedder

__all__ = ["Embedder", "Melon"]
