"""`TorchNetwork`: a checkpoint on torch. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, DebertaV2Model, DebertaV2PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging as transformers_logging

from agentsys.errors import ConfigError
from baselines.detectors.checkpoint import explain_load_errors, hub_arguments
from baselines.detectors.settings import ClassifierSettings

UNUSED_WEIGHTS = frozenset({"pooler.dense.weight", "pooler.dense.bias"})
"""Parameters that PIGuard's checkpoint may hold and its head does not use."""


class FirstTokenClassifier(DebertaV2PreTrainedModel):  # type: ignore[misc]
    """DeBERTa-v2 with a linear layer on the first token's hidden state: PIGuard's head.

    PIGuard's repository brings a class of its own, which would have to be run as remote code, and the stock
    class, which has a pooling layer in between, computes something else from the same checkpoint. Its
    parameters are `deberta.*` and `classifier.*`.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.deberta = DebertaV2Model(config)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        """Logits of shape `(n, labels)`."""
        hidden = self.deberta(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(hidden[:, 0, :]))


class TorchNetwork:
    """A model on a device.

    Args:
        model: Takes token ids and attention mask and has logits in its output.
        device: The device that holds it.
    """

    def __init__(self, model: Any, device: Any) -> None:
        self.model = model
        self.device = device

    def logits(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[Any]:
        """Make one pass, without gradients."""
        with torch.inference_mode():
            given = {"input_ids": ids, "attention_mask": mask}
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in given.items()}
            result: NDArray[Any] = self.model(**tensors).logits.float().cpu().numpy()
        return result


def load_torch(settings: ClassifierSettings, config: Any) -> TorchNetwork:
    """The checkpoint on the settings' device.

    Raises:
        ConfigError: If it or the device cannot be had.
    """
    device = _device(settings)
    model = load_checkpoint_model(settings, config)
    try:
        return TorchNetwork(model.to(device), device)
    except (RuntimeError, AssertionError) as error:  # torch raises either for hardware that is not there
        raise ConfigError(f"detector device {settings.device!r}: {_first_line(error)}; try device=cpu.") from None


def load_checkpoint_model(settings: ClassifierSettings, config: Any) -> Any:
    """The checkpoint in the class of its head, on the CPU, in evaluation mode and single precision.

    Raises:
        ConfigError: If it cannot be had, or its parameters are not exactly those of the class: what is
            missing would be filled in at random, with no more than a warning.
    """
    stock = settings.head == "pooled"
    kind = AutoModelForSequenceClassification if stock else FirstTokenClassifier
    with explain_load_errors(settings), _no_progress_bar():
        # Only safetensors: the older format is a pickle, which runs code.
        model, report = kind.from_pretrained(
            **hub_arguments(settings),
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    wrong = {kind: _wrong_weights_text(report.get(kind), kind, stock) for kind in ("missing_keys", "unexpected_keys")}
    found = [f"{len(keys)} {kind.replace('_keys', '')} ({keys[0]})" for kind, keys in wrong.items() if keys]
    if found:
        raise ConfigError(
            f"Detector model {settings.name} does not fit head {settings.head!r}:"
            f" parameters {' and '.join(found)}."
        )
    return model.eval()


def _wrong_weights_text(keys: Any, kind: str, stock: bool) -> list[str]:
    harmless = UNUSED_WEIGHTS if kind == "unexpected_keys" and not stock else frozenset()
    # Older versions of transformers saved this table of numbers with the weights.
    return sorted(k for k in keys or () if k not in harmless and not k.endswith("position_ids"))


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Loading takes seconds and would draw over the run's own progress; downloads still show theirs."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _device(settings: ClassifierSettings) -> Any:
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(settings.device)
    except RuntimeError as error:
        raise ConfigError(f"detector device {settings.device!r}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
