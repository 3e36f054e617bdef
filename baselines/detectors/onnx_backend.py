"""`OnnxNetwork`: a classifier on ONNX runtime, several times faster on a CPU. Imports onnxruntime."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from huggingface_hub import hf_hub_download
from numpy.typing import NDArray

from agentsys.errors import ConfigError
from baselines.detectors.classifier import PACKAGES_TO_EXPORT, ClassifierSettings, require_detector_packages
from baselines.detectors.torch_backend import explain_load_errors, load_checkpoint_model

MADE_FROM = "agentsys.made_from"
"""Metadata of a file we exported: model, revision and head, so that it is not used for another."""
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class OnnxNetwork:
    """A session of ONNX runtime with inputs `input_ids` and `attention_mask`, and logits as first output."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._inputs = {given.name for given in session.get_inputs()}

    def compute_logits(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[Any]:
        """Make one pass. Token types, where the file asks for them, are all 0."""
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: array for name, array in given.items() if name in self._inputs}
        result: NDArray[Any] = self.session.run(None, feed)[0]
        return result


def load_onnx(settings: ClassifierSettings, config: Any) -> OnnxNetwork:
    """Load the ONNX file of the settings; one named by an absolute path is exported first if it is not there.

    Raises:
        ConfigError: If it cannot be had, was made from another model, or the device is not there.
    """
    path = _find_onnx_file(settings, config)
    providers = _list_providers(settings.device)
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # noqa: BLE001 - its exceptions have no other base in common
        raise ConfigError(f"onnx_file={path} cannot be loaded: {str(error).splitlines()[0]}") from None
    made_from = session.get_modelmeta().custom_metadata_map.get(MADE_FROM, identify_export(settings))
    if made_from != identify_export(settings):
        raise ConfigError(f"onnx_file={path} was made from {made_from}; name another file, or delete it.")
    return OnnxNetwork(session)


def identify_export(settings: ClassifierSettings) -> str:
    """Identify the checkpoint and head that a file was exported from."""
    return f"{settings.name} ({settings.head})"


def _find_onnx_file(settings: ClassifierSettings, config: Any) -> Path:
    named = Path(settings.onnx_file or "").expanduser()
    if named.is_absolute():
        return named if named.is_file() else _ensure_export(settings, config, named)
    folder = Path(settings.model_id)
    if folder.is_dir():
        return folder / named
    source = {"revision": settings.revision, "local_files_only": settings.local_files_only}
    with explain_load_errors(settings):
        return Path(hf_hub_download(settings.model_id, named.as_posix(), **source))


def _ensure_export(settings: ClassifierSettings, config: Any, path: Path) -> Path:
    require_detector_packages(settings, PACKAGES_TO_EXPORT)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        export_onnx(settings, config, partial, {MADE_FROM: identify_export(settings)})
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"onnx_file={path} cannot be written: {error.strerror}.") from None
    return path


def _list_providers(device: str) -> list[str]:
    """List execution providers in order of preference.

    Raises:
        ConfigError: If the installed ONNX runtime has none for the device.
    """
    available = onnxruntime.get_available_providers()
    if device == "cpu":
        return [_CPU]
    if device == "auto":
        return [name for name in (_CUDA, _CPU) if name in available]
    if device.startswith("cuda") and _CUDA in available:
        return [_CUDA, _CPU]
    raise ConfigError(
        f"detector device {device!r}: this ONNX runtime has only {', '.join(available)}; try device=cpu."
    )


class _LogitsModule(torch.nn.Module):  # type: ignore[misc]
    """The model with nothing but its logits as output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def export_onnx(settings: ClassifierSettings, config: Any, path: Path, metadata: Mapping[str, str]) -> None:
    """Export the settings' checkpoint, for batches and texts of any size.

    Takes seconds for a tiny model and half a minute for a full-size one.

    Raises:
        ConfigError: If the checkpoint cannot be had.
        OSError: If the file cannot be written.
    """
    model = _LogitsModule(load_checkpoint_model(settings, config)).eval()
    example = torch.ones((2, 8), dtype=torch.int64)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=65536)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecations: a user can do nothing about them
        program = torch.onnx.export(
            model,
            (example, example.clone()),
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_shapes={"input_ids": axes, "attention_mask": axes},
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(metadata)
    program.save(str(path), external_data=False)
