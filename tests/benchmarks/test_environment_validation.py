"""Validating an environment remembers addresses, and finds what pydantic itself finds."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.functions_runtime import TaskEnvironment
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, EmailStr, Field, ValidationError, model_validator

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.loading import environment
from agentsys.benchmarks.loading.environment import environment_validation


class Card(BaseModel):
    address: EmailStr
    name: str = Field("nobody", max_length=8)


class Book(TaskEnvironment):
    owner: EmailStr
    cards: list[Card] = Field(default_factory=list)
    by_address: dict[EmailStr, Card] = Field(default_factory=dict)

    @model_validator(mode="after")
    def filed(self) -> Book:
        self.by_address |= {card.address: card for card in self.cards}
        return self


class Plain(TaskEnvironment):
    text: str


def outcome(validate: Any, document: Any) -> tuple[Any, ...]:
    try:
        found = validate(document)
    except ValidationError as error:
        return "refused", str(error)
    return type(found), found, found.model_dump(), found.model_fields_set


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


@settings(max_examples=100)
@given(st.fixed_dictionaries({"owner": ADDRESSES}, optional={"cards": st.lists(CARDS, max_size=3)}))
def test_what_is_accepted_made_and_refused_is_what_pydantic_accepts_makes_and_refuses(document: Any) -> None:
    quick = environment_validation(Book)
    for _ in range(2):  # the second time from memory
        assert outcome(quick, document) == outcome(Book.model_validate, document)


def test_an_address_is_checked_once_in_nested_classes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import networks

    checked: list[str] = []
    original = networks.validate_email

    def counting(text: str) -> tuple[str, str]:
        checked.append(text)
        return original(text)

    monkeypatch.setattr(networks, "validate_email", counting)
    environment._remembering.cache_clear()
    quick = environment_validation(Book)
    for _ in range(3):
        quick(
            {
                "owner": "once@b.example",
                "cards": [{"address": "once@b.example"}, {"address": "two@b.example"}],
            }
        )
    assert checked == ["once@b.example", "two@b.example"]


def test_a_class_without_addresses_keeps_its_own_validator() -> None:
    assert environment_validation(Plain) == Plain.model_validate


def test_with_a_pydantic_that_knows_no_such_option_validation_is_the_classs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(schema: Any, config: Any = None) -> None:
        raise AssertionError("it is called with the option, so this is never reached")

    monkeypatch.setattr(environment, "SchemaValidator", older)
    assert environment_validation(Book) == Book.model_validate


def test_every_text_that_one_attack_writes_into_a_suite_is_kept_until_the_next_defense_comes() -> None:
    from agentsys.attacks.registered import RegisteredAttack
    from agentsys.contracts import NotInjectable, Victim

    attack, suite = RegisteredAttack("important_instructions"), AgentDojo("v1.2.2").suite("workspace")
    written = set()
    for user_task in suite.user_tasks.values():
        for injection_task in suite.injection_tasks.values():
            try:
                found = attack.injections(suite, user_task, injection_task, Victim("GPT-4", "Emma Johnson"))
            except NotInjectable:
                continue
            written.add(tuple(sorted(found.items())))
    assert 256 < len(written) <= environment.KEPT
