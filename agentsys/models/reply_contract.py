"""`ReplyContract`: the answer a role has to give, declared once for prompt, schema, reader and repair.

A role's prompt ends with the contract's form and one worked example: a placeholder would come back as an answer.
A reply that cannot be used is asked for once more in words that say what was wrong with it, for the identical
request gets the identical reply. Such replies are counted by role and flaw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, JsonSchema, assistant, system, user
from agentsys.models.providers.wire_parts import read_visible_text
from agentsys.models.trace import ReplyFlaw, mark_reply_unreadable

Read = TypeVar("Read")


class UnusableReply(Exception):
    """A reply that is not what was asked for; the message says why, to its author, and may be empty."""

    def __init__(self, flaw: ReplyFlaw, words: str = "") -> None:
        super().__init__(words)
        self.flaw = flaw


def build_object_schema(**kinds: str) -> JsonSchema:
    """The schema of an object that has exactly these fields, each of a JSON type."""
    fields = {name: {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


@dataclass(frozen=True)
class ReplyContract(Generic[Read]):
    """Form of one role's answer, and the reply to an answer without it."""

    role: str
    """Who is asked (`ChatRequest.role`)."""
    task: str
    """What the role is for and what its message holds."""
    form: str
    """The form of the answer."""
    examples: Sequence[tuple[str, str]]
    """Worked examples, a message and the right answer to it: about nothing that a benchmark has."""
    read: Callable[[str], Read | None]
    """Gives what a reply says; None where it says nothing of what was asked for. May raise `UnusableReply`."""
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

    def list_texts(self) -> dict[str, str]:
        """Every text that is said to the role, by name."""
        return {self.role: self.prompt} | {
            f"{self.role}_again_{flaw.value}": text for flaw, text in self.repairs.items()
        }

    def request(self, messages: Sequence[ChatMessage]) -> ChatRequest:
        """The question, with the form for servers that hold a model to it."""
        return ChatRequest(list(messages), role=self.role, form_schema=self.schema)

    def open_conversation(self, question: str | Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages of the first request: a question behind the role's own system message, or all of them."""
        return [system(self.prompt), user(question)] if isinstance(question, str) else list(question)

    def parse(self, reply: str) -> Read:
        """Parse a reply.

        Raises:
            UnusableReply: If it is not what was asked for.
        """
        if self._echoes_example(reply):
            raise UnusableReply(ReplyFlaw.ECHOED)
        value = self.read(reply)
        if value is None:
            raise UnusableReply(ReplyFlaw.UNREAD)
        return value

    def read_reply(self, reply: str) -> Read | ReplyFlaw:
        """Parse a reply, or return its flaw, which is counted."""
        try:
            return self.parse(reply)
        except UnusableReply as fault:
            mark_reply_unreadable(fault.flaw)
            return fault.flaw

    def repair(self, flaw: ReplyFlaw, words: str = "") -> ChatMessage:
        """Write the message that asks the role to mend a flawed reply."""
        return user(self.repairs.get(flaw) or f"{words or _WRONG[flaw]} {self.form}")

    def ask(
        self,
        model: ChatModel,
        question: str | Sequence[ChatMessage],
        retries: int = 1,
        *,
        repeat: bool = False,
        heating: float | None = None,
        read: Callable[[ChatReply], Read | None] | None = None,
        **settings: Any,
    ) -> ContractAnswer[Read]:
        """Ask until a reply can be used, each time with what was wrong with the one before.

        Args:
            model: The model.
            question: The user message behind the role's own system message, or the whole conversation.
            retries: How often it is asked again.
            repeat: Ask again with the identical messages, as some published systems do.
            heating: By how much the temperature rises from one attempt to the next; the first is 0.
            read: Reads a reply of which more than the words counts, in place of the contract's reader.
            **settings: Fields of the requests.

        Raises:
            ModelError: If the model gave no reply; that is never an answer.
        """
        context, replies, faults = self.open_conversation(question), list[ChatReply](), list[UnusableReply]()
        for attempt in range(retries + 1):
            request = replace(self.request(context), **settings)
            if heating is not None:
                request = replace(request, temperature=round(heating * attempt, 1))
            reply = model.complete(request)
            replies.append(reply)
            words = read_visible_words(reply)
            try:
                if is_cut_off(reply, request):
                    raise UnusableReply(ReplyFlaw.UNREAD, _CUT)
                parsed = read(reply) if read else None
                value = self.parse(words) if parsed is None else parsed
                return ContractAnswer(value, replies, faults, [*context, reply.message])
            except UnusableReply as fault:
                mark_reply_unreadable(fault.flaw)
                faults.append(fault)
            if not repeat:
                # A model may answer with nothing; some providers refuse empty messages.
                context += [assistant(words or "(nothing)"), self.repair(faults[-1].flaw, str(faults[-1]))]
        return ContractAnswer(None, replies, faults, context)

    def _echoes_example(self, reply: str) -> bool:
        squeezed = "".join(reply.split())
        examples = ("".join(answered.split()) for _, answered in self.examples)
        return any(len(example) >= _SHORTEST_ECHO and example in squeezed for example in examples)


@dataclass(frozen=True)
class ContractAnswer(Generic[Read]):
    """Result of a question."""

    value: Read | None
    """As it was read; None if no reply could be."""
    replies: Sequence[ChatReply]
    """All that were given."""
    faults: Sequence[UnusableReply] = ()
    """What was wrong with those that could not be used, in order."""
    messages: Sequence[ChatMessage] = ()
    """The whole conversation."""

    @property
    def words(self) -> str:
        """The last reply's words."""
        return read_visible_words(self.replies[-1])

    @property
    def counts(self) -> tuple[int, int]:
        """How many replies were given, and how many of them could not be used."""
        return len(self.replies), len(self.faults)


def read_visible_words(reply: ChatReply) -> str:
    """Give a reply's words without hidden reasoning, also where it is left in the text (`<think>`)."""
    text = read_visible_text(reply.message)
    return text.partition("</think>")[2] if text.lstrip().startswith("<think>") else text


def is_cut_off(reply: ChatReply, request: ChatRequest) -> bool:
    """True if a reply ended at a bound on its tokens, by its server's word or by the tokens it used up."""
    bound = request.max_tokens
    return reply.cut or (bound is not None and reply.usage.completion >= bound)


_SHORTEST_ECHO = 16
"""Letters of an example that only an echo has; shorter answers ("True") are their own."""
_CUT = "Your reply was cut off before its end. Answer again, shorter."
_WRONG = {
    ReplyFlaw.UNREAD: "Your reply was not of the form asked for.",
    ReplyFlaw.ECHOED: "Your reply repeats the example, which is about another message.",
    ReplyFlaw.WRONG_FORM: "Your reply does not have the declared fields and types.",
}
