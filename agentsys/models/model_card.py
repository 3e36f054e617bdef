"""`ModelCard`: what a model's YAML says about the model, and the provider object that the YAML names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentsys.base.object_import import registered, todays_path
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from agentsys.models.pricing import Price
from agentsys.models.wrappers.rate_limit import RatePolicy
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
    """Whose chat template it reads, as `attacks.red_team.chat_injection` names them; None: not known.
    What an attacker may guess."""
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
    card_fields = {field: value for field, value in fields.items() if field in ModelCard.model_fields}
    try:
        return ModelCard.model_validate(card_fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Model '{fields.get('name', '?')}': {where}: {first['msg']}.") from None


_NOT_IDENTITY = {"name", "price", "timeout_s", "max_reply_bytes", "api_key_env", "prompt_cache"}
"""Arguments that no reply depends on."""


def build_provider(fields: Mapping[str, Any], card: ModelCard) -> ChatModel:
    """Build the provider that a model's YAML names; what it takes of the model's card is handed to it.

    Raises:
        ConfigError: If the class cannot be found, an argument is unknown or missing, or the provider
            itself refuses (a missing key, for one).
    """
    provider_class = find_model_class(card.name, fields.get("_target_"))
    arguments = _collect_arguments(provider_class, fields, card)
    built: ChatModel = provider_class(**arguments)
    return built


def reply_identity(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Select what the replies of this model depend on besides the request: the part of its YAML that matters.

    A class that moved counts under its first name, or replies that were paid for before would be asked again.
    """
    ignored = _NOT_IDENTITY | (set(ModelCard.model_fields) - {"name"})
    known = {field: value for field, value in fields.items() if field not in ignored}
    return {k: registered(v).first if k == "_target_" else v for k, v in known.items()}


def find_model_class(model: str, path: object) -> type[Any]:
    """The class under a dotted path, as Hydra finds its `_target_`.

    Raises:
        ConfigError: If there is no such class, or it has no `complete`.
    """
    if not isinstance(path, str) or "." not in path:
        raise ConfigError(
            f"Model '{model}': _target_ must name a class, as package.module.Class; got {path!r}."
        )
    path = todays_path(path)
    module_name, _, class_name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Model '{model}': _target_ {path} cannot be imported (no module named '{error.name}');"
            " check the spelling, or put its folder on the path (--plugin-path)."
        ) from None
    model_class = getattr(module, class_name, None)
    if not isinstance(model_class, type):
        known = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(f"Model '{model}': {unknown_name('class', class_name, known)}")
    if not hasattr(model_class, "complete"):
        raise ConfigError(f"Model '{model}': {path} is no chat model: it has no method `complete`.")
    return model_class


def _collect_arguments(
    provider_class: type[Any], fields: Mapping[str, Any], card: ModelCard
) -> dict[str, Any]:
    parameters = inspect.signature(provider_class).parameters
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    shared = {field: getattr(card, field) for field in ModelCard.model_fields if field in parameters}
    extra = {k: v for k, v in fields.items() if k not in ModelCard.model_fields and k != "_target_"}
    for key in extra:
        if key not in parameters and not takes_any:
            known = {*parameters, *ModelCard.model_fields}
            raise ConfigError(f"Model '{card.name}': {unknown_name('key', key, known)}")
    arguments = shared | extra
    for name, parameter in parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in variadic
        if needed and name not in arguments:
            raise ConfigError(
                f"Model '{card.name}' needs {name}; add it to its YAML or as model.{name}=VALUE."
            )
    return arguments
