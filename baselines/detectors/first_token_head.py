"""`FirstTokenClassifier`: DeBERTa-v2 with a linear layer on the first token's hidden state. Imports torch.

PIGuard's head. Its repository brings a class of its own, which would have to be run as remote code, and the
stock class, which has a pooling layer in between, computes something else from the same checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DebertaV2Model, DebertaV2PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

UNUSED = frozenset({"pooler.dense.weight", "pooler.dense.bias"})
"""Parameters that PIGuard's checkpoint may hold and its head does not use."""


class FirstTokenClassifier(DebertaV2PreTrainedModel):  # type: ignore[misc]
    """Parameters `deberta.*` and `classifier.*`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.deberta = DebertaV2Model(config)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        """Logits of shape `(n, labels)`."""
        hidden = self.deberta(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(hidden[:, 0, :]))
