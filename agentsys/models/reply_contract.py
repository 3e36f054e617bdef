"""`ReplyContract`: the answer a role has to give, declared once for prompt, schema, reader and repair.

A role's prompt ends with the contract's form and one worked example: a placeholder would come back as an answer.
A reply that cannot be used is asked for once more in words that say what was wrong with it, for the identical
request gets the identical reply. Such replies are counted by role and flaw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, JsonSchema, text_of, user
from agentsys.models.trace import ReplyFlaw, mark_reply_unreadable

Read = TypeVar("Read")


@dataclass(frozen=True)
class ReplyContract(Generic[Read]):
    """What one role has to answer, and what is said to it where it does not."""

    role: str
    """Who is asked (`ChatRequest.role`)."""
    task: str
    """What the role is for and what its message holds."""
    form: str
    """The form of the answer."""
    examples: Sequence[tuple[str, str]]
    """Worked examples, a message and the right answer to it: about nothing that a benchmark has."""
    read: Callable[[str], Read | None]
    """Gives what a reply says; None where it says nothing of what was asked for."""
    repairs: Mapping[ReplyFlaw, str] = field(default_factory=dict)
    """What is said of a reply that cannot be used; every flaw without words of its own is `UNREAD`."""
    schema: JsonSchema | None = None
    """The answer as a JSON schema, for servers that hold a model to it."""

    @property
    def prompt(self) -> str:
        """The role's system message: task, form, worked examples."""
        worked = [
            f"For example, on\n\n{asked}\n\nthe answer is\n\n{answered}" for asked, answered in self.examples
        ]
        return "\n\n".join([self.task, self.form, *worked])

    def texts(self) -> dict[str, str]:
        """Every text that is said to the role, by name."""
        return {self.role: self.prompt} | {
            f"{self.role}_again_{flaw.value}": text for flaw, text in self.repairs.items()
        }

    def request(self, messages: Sequence[ChatMessage]) -> ChatRequest:
        """The question, with the form for servers that hold a model to it."""
        return ChatRequest(list(messages), role=self.role, form_schema=self.schema)

    def read_reply(self, reply: str) -> Read | ReplyFlaw:
        """What a reply says, or its flaw, which is counted."""
        if self._echoes_example(reply):
            flaw = ReplyFlaw.ECHOED
        elif (value := self.read(reply)) is not None:
            return value
        else:
            flaw = ReplyFlaw.UNREAD
        mark_reply_unreadable(flaw)
        return flaw

    def repair(self, flaw: ReplyFlaw) -> ChatMessage:
        """What the role is told of a reply with a flaw."""
        return user(self.repairs.get(flaw) or f"{_WRONG[flaw]} {self.form}")

    def ask(
        self, model: ChatModel, messages: Sequence[ChatMessage], retries: int = 1
    ) -> ContractAnswer[Read]:
        """Ask until a reply can be used, each time with what was wrong with the one before.

        Raises:
            ModelError: If the model gave no reply.
        """
        context, replies = list(messages), []
        for _ in range(retries + 1):
            reply = model.complete(self.request(context))
            replies.append(reply)
            value = self.read_reply(text_of(reply.message))
            if not isinstance(value, ReplyFlaw):
                return ContractAnswer(value, replies)
            context += [reply.message, self.repair(value)]
        return ContractAnswer(None, replies)

    def _echoes_example(self, reply: str) -> bool:
        said = "".join(reply.split())
        examples = ("".join(answered.split()) for _, answered in self.examples)
        return any(len(example) >= _SHORTEST_ECHO and example in said for example in examples)


@dataclass(frozen=True)
class ContractAnswer(Generic[Read]):
    """What came of a question."""

    value: Read | None
    """As it was read; None if no reply could be."""
    replies: Sequence[ChatReply]
    """All that were given."""


_SHORTEST_ECHO = 16
"""Letters of an example that only an echo has; shorter answers ("True") are their own."""
_WRONG = {
    ReplyFlaw.UNREAD: "Your reply was not of the form asked for.",
    ReplyFlaw.ECHOED: "Your reply repeats the example, which is about another message.",
    ReplyFlaw.WRONG_FORM: "Your reply does not have the declared fields and types.",
}
