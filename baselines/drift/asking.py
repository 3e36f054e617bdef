"""One question to one of DRIFT's roles: a system message, a user message, the words that come back."""

from __future__ import annotations

from agentsys.models.chat import ChatModel, ChatRequest, system, user
from agentsys.models.providers.wire_parts import visible_text


def ask_role(model: ChatModel, role: str, instructions: str, question: str) -> str:
    """Ask the model in this role and give its words, hidden reasoning left out.

    Raises:
        ModelError: If it gave no reply. The reference goes on with a fixed text instead, which its readers
            take for "clean", "Read" and "no": a case would be scored whose defense was not there.
    """
    request = ChatRequest([system(instructions), user(question)], role=role)
    return visible_text(model.complete(request).message)
