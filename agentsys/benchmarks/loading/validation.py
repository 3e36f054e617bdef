"""`environment_validation`: pydantic's own validation of an environment, which remembers e-mail addresses.

An address is checked by pure Python (`email_validator`). Workspace's 56 addresses stand in its environment
hundreds of times and are the same in every case; checking them took most of the time that validating an
environment with a new injection takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, EmailStr
from pydantic_core import SchemaValidator
from pydantic_core.core_schema import CoreConfig

_REMEMBERED = 4096
"""Addresses, of all suites; the oldest is forgotten first."""


def environment_validation(environment_type: type[BaseModel]) -> Callable[[Any], Any]:
    """What `environment_type.model_validate` does to a document, faster.

    The validator is built from the class's own schema, where a function that remembers stands in place of
    the one that checks an address, so it makes instances of the same classes and raises the same errors.

    Args:
        environment_type: A class of environments. One whose schema holds no address keeps its own validator.
    """
    schema = environment_type.__pydantic_core_schema__
    quicker = _with_remembered_addresses(schema)
    if quicker == schema:
        return environment_type.model_validate
    titled = CoreConfig(title=environment_type.__name__)  # how its errors call it
    try:
        # Without the option the nested classes' own validators would be taken, and they remember nothing.
        return SchemaValidator(quicker, titled, _use_prebuilt=False).validate_python
    except TypeError:  # a pydantic without that option, which is not in its documentation
        return environment_type.model_validate


def _with_remembered_addresses(node: Any) -> Any:
    if type(node) is dict:
        # `metadata` holds what JSON schemas are made with, which is no part of validating.
        return {k: v if k == "metadata" else _with_remembered_addresses(v) for k, v in node.items()}
    if type(node) in (list, tuple):
        return type(node)(_with_remembered_addresses(value) for value in node)
    return _remembering(node) if getattr(node, "__self__", None) is EmailStr and callable(node) else node


@lru_cache
def _remembering(check: Callable[[str], str]) -> Callable[[str], str]:
    return lru_cache(_REMEMBERED)(check)
