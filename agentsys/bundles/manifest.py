"""`Manifest`: what a bundle says of itself, in its member `bundle.json`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from agentsys.errors import ConfigError
from agentsys.named_module import by_registered_names, with_todays_paths

MANIFEST_NAME = "bundle.json"
RECORDS, REPLIES, KEPT, FILES, CODE = "records", "replies", "kept", "files", "code"
"""Folders of a bundle: records, replies of models, files that defenses keep, files that options name, and
source files of the user's."""
MEMBER_PREFIX = "bundle:"
"""Begins an option's value that names a member, e.g. `bundle:files/attack.file/texts.json`."""


class MemberMark(NamedTuple):
    """What a member is known by."""

    size: int
    sha256: str


class _ManifestPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BundledCell(_ManifestPart):
    """One cell of the run."""

    settings: Annotated[dict[str, Any], AfterValidator(with_todays_paths)]
    """As its recipe has them, with `bundle:` in place of paths."""
    identity: Annotated[dict[str, Any], AfterValidator(by_registered_names)]
    """Everything that a case's outcome depends on, likewise."""


class Manifest(_ManifestPart):
    """All of a bundle but the content of its members."""

    format: Literal[1] = 1
    versions: dict[str, str]
    """Package -> version where the bundle was packed, Python among them."""
    cells: dict[str, BundledCell]
    """Hash that records name -> their cell."""
    code: list[dict[str, str]]
    """States of the packages' own files that cases were run with: file -> beginning of its SHA-256."""
    data: dict[str, str]
    """File of a dataset that is not in the bundle -> beginning of its SHA-256."""
    unfinished: int = 0
    """Planned cases without a record."""
    members: dict[str, MemberMark]
    """Name of every other member -> its mark."""


def parse_manifest(content: bytes, file: object) -> Manifest:
    """Read a bundle's manifest.

    Raises:
        ConfigError: If it is none.
    """
    try:
        return Manifest.model_validate(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:3])
        raise ConfigError(f"{file} is no bundle that this version reads: {where}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{file} is no bundle: its {MANIFEST_NAME} is not valid JSON.") from None
