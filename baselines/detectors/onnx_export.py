"""Writes a checkpoint as an ONNX file. Imports torch; torch's exporter needs onnx and onnxscript."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from baselines.detectors.settings import ClassifierSettings
from baselines.detectors.torch_backend import load_model


class _Logits(torch.nn.Module):  # type: ignore[misc]
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
    model = _Logits(load_model(settings, config)).eval()
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
