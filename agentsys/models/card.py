"""`ModelCard`: what the harness knows about a model besides how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentsys.errors import ConfigError
from agentsys.models.price import Price
from agentsys.models.wrappers.pace import RatePolicy
from agentsys.models.wrappers.retry import RetryPolicy


class ModelCard(BaseModel):
    """The fields of a model's YAML that are about the model and not about its provider."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str = Field(min_length=1)
    """The name in configs, records and tables."""
    prose_name: str = Field(min_length=1)
    """What attacks call it, e.g. `GPT-4`."""
    simulated: bool = False
    """Whether it is no LLM; then every record, table and figure says so."""
    chat_family: str | None = None
    """Whose chat template it reads, as `agentsys.attacks.forged.families` names them; None: not known. What
    an attacker may guess."""
    context_tokens: int | None = Field(default=None, gt=0)
    """Size of its context; None where it is not known."""
    price: Price | None = None
    """None: cost is not known (or, for a model of your own, nothing)."""
    retry: RetryPolicy | None = None
    """None: the default policy (scripted models: none at all)."""
    rate: RatePolicy | None = None
    """Most requests and tokens per minute; None: as many as the server takes."""
    cache: bool = False
    """Whether replies are kept on disk, so that a repeated call costs nothing."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role -> name of another model's YAML that answers for it (in a YAML, null: this model does)."""

    @field_validator("roles", mode="before")
    @classmethod
    def _drop_null_roles(cls, roles: object) -> object:
        # YAMLs list the usual roles as null, so that `model.roles.worker=NAME` overrides a known key.
        if isinstance(roles, Mapping):
            return {role: name for role, name in roles.items() if name is not None}
        return {} if roles is None else roles


def to_plain_dict(node: Mapping[str, Any]) -> dict[str, Any]:
    """A model's YAML as a plain dict, OmegaConf's nodes resolved.

    Raises:
        ConfigError: If a field that has to be given is still `???`.
    """
    if type(node).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        node = OmegaConf.to_container(node, resolve=True, throw_on_missing=False)  # type: ignore[assignment]
    missing = [field for field, value in node.items() if isinstance(value, str) and value == "???"]
    if missing:
        raise ConfigError(
            f"Model '{node.get('name', '?')}' needs {missing[0]}; give it: model.{missing[0]}=VALUE."
        )
    return dict(node)


def parse_card(node: Mapping[str, Any]) -> ModelCard:
    """The card of a model's YAML; builds nothing and needs no key.

    Raises:
        ConfigError: If one of the card's fields is missing or wrong.
    """
    fields = to_plain_dict(node)
    own = {field: value for field, value in fields.items() if field in ModelCard.model_fields}
    try:
        return ModelCard.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Model '{fields.get('name', '?')}': {where}: {first['msg']}.") from None
