"""Validating an environment remembers addresses, and finds what pydantic itself finds."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.functions_runtime import TaskEnvironment
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, EmailStr, Field, ValidationError, model_validator

from agentsys.benchmarks import environment_loader
from agentsys.benchmarks.environment_loader import build_validator


def book_class(*, discreet: bool = False) -> Any:
    """A class of environments whose validator makes models of another; a new one each time."""

    class Card(BaseModel):
        address: EmailStr
        name: str = Field("nobody", max_length=8)

    class Book(TaskEnvironment):
        model_config = ConfigDict(hide_input_in_errors=True) if discreet else ConfigDict()
        owner: EmailStr
        cards: list[Card] = Field(default_factory=list)
        by_address: dict[EmailStr, Card] = Field(default_factory=dict)

        @model_validator(mode="after")
        def filed(self) -> Book:
            self.by_address |= {card.address: card for card in self.cards}
            self.cards.append(Card(address=self.owner, name="me"))
            return self

    return Book


def outcome(validate: Any, document: Any) -> tuple[Any, ...]:
    try:
        found = validate(document)
    except ValidationError as error:
        return "refused", str(error)
    return type(found).__name__, repr(found), found.model_dump(), found.model_fields_set


ADDRESSES = st.sampled_from(
    [
        "a@b.example",
        "A@B.Example",
        "å@b.example",
        "a@b.example ",
        "a@",
        "",
        "name <a@b.example>",
        "a@b@c",
        3,
        None,
    ]
)
CARDS = st.fixed_dictionaries({"address": ADDRESSES}, optional={"name": st.sampled_from(["Bo", "x" * 9, 1])})


BOOK = book_class()
QUICK = build_validator(BOOK)


@settings(max_examples=50)
@given(st.fixed_dictionaries({"owner": ADDRESSES}, optional={"cards": st.lists(CARDS, max_size=3)}))
def test_what_is_accepted_made_and_refused_is_what_pydantic_accepts_makes_and_refuses(document: Any) -> None:
    for _ in range(2):  # the second time from memory
        assert outcome(QUICK, document) == outcome(BOOK.model_validate, document)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that is checked from now on."""
    from pydantic import networks

    found: list[str] = []
    original = networks.validate_email

    def counting(text: str) -> tuple[str, str]:
        found.append(text)
        return original(text)

    monkeypatch.setattr(networks, "validate_email", counting)
    environment_loader._cached_check.cache_clear()
    return found


def test_with_a_pydantic_that_knows_no_such_option_validation_is_the_classs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(schema: Any, config: Any = None) -> None:
        raise AssertionError("it is called with the option, so this is never reached")

    monkeypatch.setattr(environment_loader, "SchemaValidator", older)
    made = book_class()
    assert build_validator(made) == made.model_validate
