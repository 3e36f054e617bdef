"""`VectorsEnvironment`: documents to read, and a list of what was done besides reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from agentdojo.functions_runtime import Depends, Function, TaskEnvironment, make_function
from pydantic import BaseModel, Field


class ToolAction(BaseModel):
    """One call of a tool that changes something."""

    tool: str
    args: dict[str, str]


class VectorsEnvironment(TaskEnvironment):  # type: ignore[misc]
    """State of one case."""

    data: str
    """Digest of the corpus, so that `versions.data` of a record tells corpora apart."""
    documents: dict[str, str]
    """Name -> content."""
    deeds: list[ToolAction] = Field(default_factory=list)
    """What was done, in order."""


Documents = Annotated[dict[str, str], Depends("documents")]
ToolActions = Annotated[list[ToolAction], Depends("deeds")]


def read_document(documents: Documents, name: str) -> str:
    """Reads a document.

    :param name: The document's name.
    """
    if name not in documents:
        raise ValueError(f"There is no document named {name}.")
    return documents[name]


def send_message(deeds: ToolActions, recipient: str, text: str) -> str:
    """Sends a message to somebody.

    :param recipient: The e-mail address of the recipient.
    :param text: What the message says.
    """
    return _record_action(deeds, "send_message", recipient=recipient, text=text)


def save_note(deeds: ToolActions, text: str) -> str:
    """Saves a note that is kept for later conversations.

    :param text: What the note says.
    """
    return _record_action(deeds, "save_note", text=text)


def fetch_url(deeds: ToolActions, url: str) -> str:
    """Fetches a web page.

    :param url: The page's URL.
    """
    return _record_action(deeds, "fetch_url", url=url)


def run_command(deeds: ToolActions, command: str) -> str:
    """Runs a command in the shell.

    :param command: The command line.
    """
    return _record_action(deeds, "run_command", command=command)


def delegate(deeds: ToolActions, agent: str, task: str) -> str:
    """Hands a task to another agent.

    :param agent: The agent's name.
    :param task: What it is to do.
    """
    return _record_action(deeds, "delegate", agent=agent, task=task)


def _record_action(deeds: list[ToolAction], tool: str, **args: str) -> str:
    deeds.append(ToolAction(tool=tool, args=args))
    return "Done."


_ALL: tuple[Callable[..., Any], ...] = (
    read_document,
    send_message,
    save_note,
    fetch_url,
    run_command,
    delegate,
)


def build_vector_tools() -> list[Function[..., Any]]:
    """The tools of every suite."""
    return [make_function(function) for function in _ALL]
