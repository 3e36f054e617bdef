"""`TorchNetwork`: a published checkpoint on torch. Imports torch and transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DebertaV2Config,
    DebertaV2Model,
    DebertaV2PreTrainedModel,
    PretrainedConfig,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from agentsys.errors import ConfigError
from baselines.detectors.classifier import ClassifierSettings

COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
STOCK_CLASS_ENDING = "ForSequenceClassification"
"""Suffix of the names of the stock classes with a pooled head."""


def make_hub_arguments(settings: ClassifierSettings) -> dict[str, Any]:
    """Name a repository's files to Hugging Face's loaders."""
    return {
        "pretrained_model_name_or_path": settings.model_id,
        "revision": settings.revision,
        "local_files_only": settings.local_files_only,
    }


@contextmanager
def explain_load_errors(settings: ClassifierSettings) -> Iterator[None]:
    """Turns what loaders raise for files they cannot get or read into one line.

    Raises:
        ConfigError: Naming the model, the reason and the mend.
    """
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise ConfigError(
            f"Cannot load the detector model {settings.name}: {reason.rstrip('.')}. Check name and network,"
            " or give a folder that has its files: model_id=FOLDER, revision=null."
        ) from error


def read_config(settings: ClassifierSettings) -> Any:
    """Read the model's configuration, for the head that the settings name.

    Raises:
        ConfigError: If it cannot be had, or says that the checkpoint was made for another head.
    """
    _check_pinned(settings)
    with explain_load_errors(settings):
        given, _ = PretrainedConfig.get_config_dict(**make_hub_arguments(settings))
    if not given:
        raise ConfigError(f"Cannot load the detector model {settings.name}: it has no config.json.")
    _check_head(given, settings)
    if settings.head == "first_token":
        # PIGuard names a model type of its own; its fields are DeBERTa-v2's.
        fields = {key: value for key, value in given.items() if key not in ("model_type", "auto_map")}
        return DebertaV2Config.from_dict(fields)
    if given.get("model_type") not in CONFIG_MAPPING:
        raise ConfigError(
            f"Detector model {settings.name} is of an unknown type {given.get('model_type')!r}."
        )
    return CONFIG_MAPPING[given["model_type"]].from_dict(given)


def _check_pinned(settings: ClassifierSettings) -> None:
    # A folder, or a commit of a repository: a name that can move would give numbers nobody can repeat.
    if Path(settings.model_id).is_dir():
        return
    if settings.model_id.startswith(("/", ".", "~")):
        raise ConfigError(f"Detector model_id={settings.model_id}: no such folder.")
    if not COMMIT_HASH.fullmatch(settings.revision or ""):
        raise ConfigError(
            f"Detector model {settings.model_id}: revision is {settings.revision!r};"
            " give the full commit (40 hexadecimal digits), so that the scores can be repeated."
        )


def _check_head(given: Mapping[str, Any], settings: ClassifierSettings) -> None:
    # Weights of one head load into the other without an error, and give scores that mean nothing.
    names = given.get("architectures") or []
    stock = not given.get("auto_map") and all(str(name).endswith(STOCK_CLASS_ENDING) for name in names)
    if stock is not (settings.head == "pooled"):
        made_for = "the stock, pooled head" if stock else f"a class of its own ({', '.join(map(str, names))})"
        raise ConfigError(
            f"Detector model {settings.name} was made for {made_for}; head is {settings.head!r},"
            " which would compute something else."
        )


def find_safe_index(labels: Mapping[int, str], settings: ClassifierSettings) -> int:
    """Find the index of the safe label.

    Raises:
        ConfigError: If the model has no such label: all verdicts would be turned round.
    """
    safe = [index for index, label in labels.items() if label.casefold() == settings.safe_label.casefold()]
    if len(safe) != 1:
        raise ConfigError(
            f"Detector model {settings.name} has no label {settings.safe_label!r} (safe_label);"
            f" it has {', '.join(labels[index] for index in sorted(labels))}."
        )
    return int(safe[0])


def read_tokenizer(settings: ClassifierSettings, config: Any) -> Any:
    """Read the model's tokenizer.

    Raises:
        ConfigError: If it cannot be had.
    """
    named = make_hub_arguments(settings)
    with explain_load_errors(settings):
        return AutoTokenizer.from_pretrained(**named, config=config, trust_remote_code=False)


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


@dataclass(frozen=True)
class TorchNetwork:
    """A model on a device."""

    model: Any
    """Takes token ids and attention mask and has logits in its output."""
    device: Any

    def compute_logits(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[Any]:
        """Make one pass, without gradients."""
        with torch.inference_mode():
            given = {"input_ids": ids, "attention_mask": mask}
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in given.items()}
            result: NDArray[Any] = self.model(**tensors).logits.float().cpu().numpy()
        return result


def load_torch(settings: ClassifierSettings, config: Any) -> TorchNetwork:
    """Load the checkpoint on the settings' device.

    Raises:
        ConfigError: If it or the device cannot be had.
    """
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(automatic if settings.device == "auto" else settings.device)
    except RuntimeError as error:
        raise ConfigError(f"detector device {settings.device!r}: {_read_first_line(error)}") from None
    model = load_checkpoint_model(settings, config)
    try:
        return TorchNetwork(model.to(device), device)
    except (RuntimeError, AssertionError) as error:  # torch raises either for hardware that is not there
        raise ConfigError(
            f"detector device {settings.device!r}: {_read_first_line(error)}; try device=cpu."
        ) from None


def load_checkpoint_model(settings: ClassifierSettings, config: Any) -> Any:
    """Load the checkpoint in the class of its head, on the CPU, in evaluation mode and single precision.

    Raises:
        ConfigError: If it cannot be had, or its parameters are not exactly those of the class: what is
            missing would be filled in at random, with no more than a warning.
    """
    stock = settings.head == "pooled"
    kind = AutoModelForSequenceClassification if stock else FirstTokenClassifier
    with explain_load_errors(settings), _hide_progress_bar():
        # Only safetensors: the older format is a pickle, which runs code.
        model, report = kind.from_pretrained(
            **make_hub_arguments(settings),
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    wrong = []
    for word, harmless in (
        ("missing", frozenset()),
        ("unexpected", frozenset() if stock else UNUSED_WEIGHTS),
    ):
        keys = report.get(f"{word}_keys") or ()
        # Older versions of transformers saved this table of numbers with the weights.
        bad = sorted(key for key in keys if key not in harmless and not key.endswith("position_ids"))
        wrong += [f"{len(bad)} {word} ({bad[0]})"] if bad else []
    if wrong:
        raise ConfigError(
            f"Detector model {settings.name} does not fit head {settings.head!r}:"
            f" parameters {' and '.join(wrong)}."
        )
    return model.eval()


@contextmanager
def _hide_progress_bar() -> Iterator[None]:
    # Loading takes seconds and would draw over the run's own progress; downloads still show theirs.
    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


def _read_first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
