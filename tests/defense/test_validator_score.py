"""The validator that decides by the probability of its word (`defense=agentsys_scored`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string

from agentsys.defense.tool_turn import CallTrace, TracedCall
from agentsys.defense.validator import read_score, validate
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.untrusted import UserRequest

Token = Mapping[str, float]


class Answer:
    """A model that gives one reply, with the log-probabilities of its tokens."""

    name = "scripted"

    def __init__(self, word: str, *tokens: Token) -> None:
        self.tokens = tuple({text: math.log(odds) for text, odds in token.items()} for token in tokens)
        self.message = ChatAssistantMessage(
            role="assistant", content=[text_content_block_from_string(word)], tool_calls=None
        )

    def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(self.message, logprobs=self.tokens if request.logprobs else ())


def is_allowed(answer: Answer, threshold: float | None) -> bool:
    call = TracedCall("pay", {}, None)
    return validate(answer, UserRequest("Pay."), CallTrace(), call, threshold=threshold).allow


@pytest.mark.parametrize(
    ("word", "odds", "threshold", "allowed"),
    [
        ("True", {"True": 0.69, "False": 0.31}, 0.7, False),
        ("True", {"True": 0.71, "False": 0.29}, 0.7, True),
        ("False", {"False": 0.6, "True": 0.4}, 0.3, True),
        # Spellings of one word are added up, and other words do not count.
        ("True", {"True": 0.4, " true": 0.2, "False": 0.2, "Maybe": 0.2}, 0.7, True),
        ("True", {"Yes": 0.9, "No": 0.1}, 0.1, False),
        ("False", {"False": 0.6, "True": 0.4}, None, False),
    ],
)
def test_the_probability_of_true_against_false_decides(
    word: str, odds: Token, threshold: float | None, allowed: bool
) -> None:
    assert is_allowed(Answer(word, {"Answer": 1.0}, odds), threshold) is allowed


def test_the_first_token_that_is_either_word_counts() -> None:
    tokens = ({"Well": 0.0}, {"False": math.log(0.9), "True": math.log(0.1)}, {"True": 0.0})
    assert read_score(tokens) == pytest.approx(0.1)


def test_a_server_without_probabilities_is_a_one_line_error() -> None:
    with pytest.raises(ConfigError, match="needs a server that tells log-probabilities") as told:
        is_allowed(Answer("True"), 0.7)
    assert "\n" not in str(told.value)
