"""Reads what a model's repository says about itself: config, labels, tokenizer. Imports transformers.

Never runs code from a repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, DebertaV2Config, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from agentsys.errors import ConfigError
from baselines.detectors.settings import ClassifierSettings

COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
STOCK_CLASS_ENDING = "ForSequenceClassification"
"""How the names of the stock classes with a pooled head end."""


def hub_arguments(settings: ClassifierSettings) -> dict[str, Any]:
    """The arguments that name a repository's files to Hugging Face's loaders."""
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
    """The model's configuration, for the head that the settings name.

    Raises:
        ConfigError: If it cannot be had, or says that the checkpoint was made for another head.
    """
    _check_pinned(settings)
    with explain_load_errors(settings):
        given, _ = PretrainedConfig.get_config_dict(**hub_arguments(settings))
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
    """A folder, or a commit of a repository: a name that can move would give numbers nobody can repeat."""
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
    """Weights of one head load into the other without an error, and give scores that mean nothing."""
    names = given.get("architectures") or []
    stock = not given.get("auto_map") and all(str(name).endswith(STOCK_CLASS_ENDING) for name in names)
    if stock is not (settings.head == "pooled"):
        made_for = "the stock, pooled head" if stock else f"a class of its own ({', '.join(map(str, names))})"
        raise ConfigError(
            f"Detector model {settings.name} was made for {made_for}; head is {settings.head!r},"
            " which would compute something else."
        )


def find_safe_index(labels: Mapping[int, str], settings: ClassifierSettings) -> int:
    """Index of the safe label.

    Raises:
        ConfigError: If the model has no such label: all verdicts would be turned round.
    """
    found = [index for index, label in labels.items() if label.casefold() == settings.safe_label.casefold()]
    if len(found) != 1:
        known: Sequence[str] = [labels[index] for index in sorted(labels)]
        raise ConfigError(
            f"Detector model {settings.name} has no label {settings.safe_label!r} (safe_label);"
            f" it has {', '.join(known)}."
        )
    return int(found[0])


def read_tokenizer(settings: ClassifierSettings, config: Any) -> Any:
    """The model's tokenizer.

    Raises:
        ConfigError: If it cannot be had.
    """
    with explain_load_errors(settings):
        return AutoTokenizer.from_pretrained(**hub_arguments(settings), config=config, trust_remote_code=False)
