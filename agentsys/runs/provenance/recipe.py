"""`Recipe`: everything that a cell was built from, kept beside its records.

An identity (`Settings.identity`) says whether two cells are the same; a recipe is enough to build one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from agentsys.atomic_file import write_atomically
from agentsys.models.secrets import mask_credentials
from agentsys.named_module import with_texts, with_todays_paths
from agentsys.runs.settings import Settings
from agentsys.runs.source_code import locate_source_files
from agentsys.runs.store import Store

_RUN_CHOICES = {"executor", "limit", "user_tasks", "injection_tasks", "epochs", "logdir", "budget", "preflight"}
"""Settings that say which cases are run, and how, and not what a case is."""
_URL_QUERY = re.compile(r"(?<=://)([^\s?#]*)[?#]\S*")


class Recipe(BaseModel):
    """The settings of a cell, and where what they point at lay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Annotated[dict[str, Any], AfterValidator(with_todays_paths)]
    """As `Settings` has them, less what only says which cases were run; credentials in addresses masked."""
    folder: str
    """Folder that relative paths in them start from."""
    code: dict[str, str] = {}
    """Source file of the user's, as `Settings.code` calls it -> its path."""


def build_recipe(settings: Settings) -> Recipe:
    """The recipe of a cell."""
    plain = settings.model_dump(mode="json", exclude=_RUN_CHOICES)
    nodes = [settings.model, settings.defense, settings.attack, settings.benchmark, *settings.others.values()]
    code = {name: str(path) for name, path in locate_source_files(nodes).items() if name in settings.code}
    return Recipe(
        settings=with_texts(mask_credentials(plain), "base_url", _without_query), folder=str(Path.cwd()), code=code
    )


def store_recipe(store: Store, settings: Settings) -> None:
    """Keep a cell's recipe beside the records that name its hash; the newest one counts.

    Raises:
        StoreError: If it cannot be written.
    """
    path = _recipe_path(store.root, settings.config_hash)
    # Not sorted: the keys of replies depend on the order of a model's options.
    data = json.dumps(build_recipe(settings).model_dump(), indent=2, default=str).encode()
    try:
        if not path.exists() or path.read_bytes() != data:
            write_atomically(path, data)
    except OSError as error:
        raise store.unwritable(path, error) from None


def load_recipe(logdir: Path, config_hash: str) -> Recipe | None:
    """The recipe of a hash; None where none was kept, or none that can be read."""
    try:
        return Recipe.model_validate(json.loads(_recipe_path(logdir, config_hash).read_bytes()))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None


def _recipe_path(logdir: Path, config_hash: str) -> Path:
    return logdir / ".agentsys" / "configs" / f"{config_hash}.recipe"


def _without_query(address: str) -> str:
    return _URL_QUERY.sub(r"\1?***", address)
