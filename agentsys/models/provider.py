"""Builds the provider object of a model's YAML: finds the class and checks its arguments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.card import ModelCard
from agentsys.models.chat import ChatModel
from agentsys.named_module import registered, todays_path

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
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        known = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ConfigError(f"Model '{model}': {unknown_name('class', class_name, known)}")
    if not hasattr(found, "complete"):
        raise ConfigError(f"Model '{model}': {path} is no chat model: it has no method `complete`.")
    return found


def _collect_arguments(provider_class: type[Any], fields: Mapping[str, Any], card: ModelCard) -> dict[str, Any]:
    parameters = inspect.signature(provider_class).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    shared = {field: getattr(card, field) for field in ModelCard.model_fields if field in parameters}
    own = {k: v for k, v in fields.items() if k not in ModelCard.model_fields and k != "_target_"}
    for key in own:
        if key not in parameters and not takes_any:
            known = {*parameters, *ModelCard.model_fields}
            raise ConfigError(f"Model '{card.name}': {unknown_name('key', key, known)}")
    arguments = shared | own
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in arguments and not _is_variadic(parameter):
            raise ConfigError(
                f"Model '{card.name}' needs {name}; add it to its YAML or as model.{name}=VALUE."
            )
    return arguments


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
