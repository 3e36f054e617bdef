"""`ClassifierSettings`: which published classifier is loaded, and how it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentsys.base.option_checks import AtLeast1
from agentsys.errors import ConfigError

ClassifierHead = Literal["pooled", "first_token"]
LongInput = Literal["windows", "truncate", "whole"]
ClassifierBackend = Literal["torch", "onnx"]

MOST_TOKENS_AT_ONCE = 8192
"""Most tokens of a text that is read in one pass."""


@dataclass(frozen=True)
class ClassifierSettings:
    """Everything a score depends on (and where the model runs). Equal settings share one loaded model.

    Raises:
        ConfigError: If an option has a value it cannot have.
    """

    model_id: str
    """Name on the Hugging Face hub, or a folder."""
    revision: str | None
    """Commit of the model's repository; None for a folder."""
    head: ClassifierHead
    """`pooled`: the stock head. `first_token`: a linear layer on the first token's hidden state."""
    safe_label: str
    """The model's label for texts without an injection, in any case."""
    long_input: LongInput = "windows"
    """`windows` of `max_length`, cut to `max_length`, or `whole` in one pass."""
    max_length: int = 512
    """Tokens of one pass, special ones included; of no effect on `whole`."""
    stride: int = 128
    """Tokens that neighbouring windows share."""
    batch_size: AtLeast1 = 16
    """Windows per pass."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, `mps`."""
    backend: ClassifierBackend = "torch"
    onnx_file: str | None = None
    """Backend `onnx`: a file of the model's repository, or one on disk (an absolute path; it is made by
    export from the checkpoint if it does not exist)."""
    local_files_only: bool = False
    """Whether to use only what has been downloaded before."""

    def __post_init__(self) -> None:
        if self.max_length < 8 or not 0 <= self.stride <= self.max_length // 2:
            raise ConfigError(
                f"detector max_length is {self.max_length} and stride {self.stride};"
                " give a max_length of 8 or more and a stride of at most half of it."
            )
        if self.backend == "onnx" and not self.onnx_file:
            raise ConfigError(
                "detector backend 'onnx' needs onnx_file: a file of the model's repository, or an"
                " absolute path that an export is written to."
            )

    @property
    def name(self) -> str:
        """Model and revision, for records."""
        return self.model_id if self.revision is None else f"{self.model_id}@{self.revision}"
