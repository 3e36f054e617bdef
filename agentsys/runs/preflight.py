"""Before the first case: what cannot run here, and whether each model's server answers and can call tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from agentsys.base.grouping import group_by, join_names
from agentsys.contracts import Defense
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.budget import UsageLog
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ErrorKind,
    ModelCodeFailed,
    ModelError,
    text_of,
    tool_message,
)
from agentsys.models.reply_checks import (
    CONNECTION_QUESTION,
    READING_SENTENCES,
    find_unparsed_call,
    is_expected_call,
)
from agentsys.models.thought_text import ThoughtBlock, find_leading_block
from agentsys.models.trace import Tracer, use_tracer
from agentsys.runs.cell import Cell
from agentsys.runs.settings import Settings

_NO_SERVER = "a server that answers", "is the server up, and model.base_url right?"
_GO_ON = "preflight=false goes on all the same"
_LASTING_ERRORS = {
    ErrorKind.BAD_KEY: ("a valid key", "check the key"),
    ErrorKind.NO_CREDIT: ("credit", "the account has no credit"),
    ErrorKind.UNKNOWN_MODEL: ("a known model", "check model.model_id and model.base_url"),
    ErrorKind.BAD_REQUEST: ("a server that takes tools", f"it refuses a small request with a tool; {_GO_ON}"),
    ErrorKind.FORBIDDEN: ("access to the model", "the account may not use it, or not from here"),
    ErrorKind.TOO_LARGE: ("a higher limit", f"a small request is too large for the account; {_GO_ON}"),
    ErrorKind.CONTEXT_LENGTH: ("a larger context", "a small request is too long for the model"),
    ErrorKind.SERVER_ERROR: ("a server that answers", f"its server fails at a small request; {_GO_ON}"),
    ErrorKind.MALFORMED_REPLY: (
        "a server that speaks this API",
        f"is model.base_url right, and the server one of this API? {_GO_ON}",
    ),
    ErrorKind.CONNECTION: _NO_SERVER,
    ErrorKind.TIMEOUT: _NO_SERVER,
}
"""Errors that every case would meet: what is needed, and the mend. Others (a rate limit, say) may have passed
by then."""


@dataclass(frozen=True)
class BlockedCell:
    """A cell that cannot run here."""

    settings: Settings
    missing: Unavailable


def group_by_cause(obstacles: Sequence[BlockedCell]) -> list[tuple[str, str]]:
    """(models and defenses, why they cannot run here), each cause once; of many names the first few."""
    by_cause = group_by([(str(one.missing), one.settings.labels) for one in obstacles], itemgetter(0))
    return [
        (join_names(f"{labels['model']} / {labels['defense']}" for _, labels in some), why)
        for why, some in by_cause.items()
    ]


def find_unreachable_cells(
    cells: Iterable[Cell], books: UsageLog | None
) -> tuple[list[BlockedCell], list[str], dict[str, ThoughtBlock]]:
    """Ask every model among some cells once.

    Returns:
        The cells whose model cannot be used, one line for each model that answered oddly, and model -> how its
        text began with thoughts.
    """
    cells = list(cells)
    own = {role for cell in cells for role in cell.defense.own_roles}
    obstacles, oddities, thoughts = list[BlockedCell](), list[str](), dict[str, ThoughtBlock]()
    asked: dict[tuple[int, str], FirstLook] = {}
    for cell in cells:
        if (key := (id(cell.stack), "")) not in asked:
            asked[key] = find_first_trouble(cell.stack.list_probe_models(but=own), books)
            oddities += [asked[key].odd] if asked[key].odd else []
            thoughts |= asked[key].thoughts
        trouble = asked[key].trouble or _find_unfit_role(cell, books, asked)
        if trouble is not None:
            obstacles.append(BlockedCell(cell.settings, trouble))
    return obstacles, oddities, thoughts


def _find_unfit_role(
    cell: Cell, books: UsageLog | None, asked: dict[tuple[int, str], FirstLook]
) -> Unavailable | None:
    """Find out why a model of the defense's own roles cannot be used; the defense tries each model once."""
    for role in cell.defense.own_roles:
        server = cell.stack.find_role_probe_model(role)
        if server is not None and (key := (id(cell.stack), role)) not in asked:
            asked[key] = FirstLook(_try_role_model(cell.defense, role, server, books))
        if (trouble := asked.get((id(cell.stack), role), FirstLook()).trouble) is not None:
            return trouble
    return None


def _try_role_model(
    defense: Defense, role: str, server: ChatModel, books: UsageLog | None
) -> Unavailable | None:
    try:
        with use_tracer(Tracer(usage_log=books)):
            why = defense.unfit(role, server)
    except ModelError as error:
        why = f"cannot be used: {error} ({_LASTING_ERRORS.get(error.kind, ('', _GO_ON))[1]})"
    if why is None:
        return None
    return Unavailable(f"Model '{server.name}', role {role}: {why}", needs=f"a model for {role}")


def run_reading_tests(cells: Iterable[Cell], books: UsageLog | None) -> tuple[dict[int, str], list[str]]:
    """Test whether models can read what a cell's attack writes: ask each to read a few such sentences.

    Returns:
        `id` of a cell -> the note of its test; and a line for each model that did not read every sentence. A model
        without a server is not asked. If a model could not be asked, it has no note.
    """
    found, unread = dict[int, str](), dict[str, None]()
    asked: dict[tuple[int, str], str] = {}
    for cell in cells:
        server, test = cell.stack.main.probe_model, cell.attack.reading_test
        if server is None or test is None:
            continue
        if (key := (id(cell.stack), test.code)) not in asked:
            asked[key] = ""
            with suppress(ModelError), use_tracer(Tracer(usage_log=books)):
                asked[key] = test.format_note(test.count_readable(server))
        if asked[key]:
            found[id(cell)] = asked[key]
        if asked[key] not in ("", test.format_note(len(READING_SENTENCES))):
            unread[
                f"Model '{server.name}': {asked[key]}, asked without the attack (docs/attacks.md#encoded)"
            ] = None
    return found, list(unread)


def make_refusal_error(obstacles: Sequence[BlockedCell], cells: int) -> ConfigError:
    """Word the error where some cells of a run cannot run: one line that names each cause once."""
    blocked = len({id(one.settings) for one in obstacles})
    if blocked == cells:
        return obstacles[0].missing
    told = "; ".join(f"{names}: {why.rstrip('.')}" for names, why in group_by_cause(obstacles))
    return ConfigError(
        f"{blocked} of {cells} cells cannot run here ({told}). "
        "Mend it, or run the others now: --skip-unavailable."
    )


class FirstLook(NamedTuple):
    """Result of the question before the first case."""

    trouble: Unavailable | None = None
    """Why a model cannot be used."""
    odd: str = ""
    """What was odd about an answer."""
    thoughts: Mapping[str, ThoughtBlock] = {}
    """Model -> how its text began with thoughts, where it did."""


def find_first_trouble(servers: Sequence[ChatModel], books: UsageLog | None) -> FirstLook:
    """Ask each server one question, and stop at the first that cannot be used."""
    odd, thoughts = "", dict[str, ThoughtBlock]()
    for server in servers:
        look = _ask_server(server, books)
        if look.trouble is not None:
            return look
        odd, thoughts = odd or look.odd, thoughts | dict(look.thoughts)
    return FirstLook(None, odd, thoughts)


def _try_thoughts(server: ChatModel, reply: ChatReply, books: UsageLog | None) -> Unavailable | None:
    """Why a model that thinks cannot go on from its own call: every case of several steps would meet it."""
    if not any(block["type"] == "thinking" for block in reply.message["content"] or ()):
        return None
    results = [tool_message(call, "yes") for call in reply.message["tool_calls"] or ()]
    told = [*CONNECTION_QUESTION.messages, reply.message, *results]
    try:
        with use_tracer(Tracer(usage_log=books)):
            server.complete(replace(CONNECTION_QUESTION, messages=told))
    except ModelError as error:
        if error.kind is ErrorKind.BAD_REQUEST:
            text = f"Model '{server.name}' cannot be used: it refuses its thoughts as they are sent back: {error}"
            return Unavailable(f"{text} (docs/models.md; {_GO_ON})", needs="thoughts sent back in its form")
    return None


def _ask_server(server: ChatModel, books: UsageLog | None) -> FirstLook:
    """Ask one server the test question, and judge its answer or error."""
    try:
        with use_tracer(Tracer(usage_log=books)):
            reply = server.complete(CONNECTION_QUESTION)
    except ModelCodeFailed as error:
        return FirstLook(
            odd=f"Model '{server.name}': its code broke ({error}); the run goes on, and shows where"
        )
    except ModelError as error:
        text = f"Model '{server.name}' cannot be used: {error}"
        if error.kind not in _LASTING_ERRORS:
            return FirstLook(odd=f"{text} (the run goes on)")
        needs, mend = _LASTING_ERRORS[error.kind]
        return FirstLook(Unavailable(f"{text} ({mend})", needs=needs))
    block = find_leading_block(text_of(reply.message))
    thoughts = {} if block is None else {server.name: block}
    if (form := find_unparsed_call(CONNECTION_QUESTION, reply)) is not None:
        text = (
            f"Model '{server.name}' cannot be used: it wrote its tool call as text ({form.family}), which its server "
            f"did not parse, so no task can be solved. Start the server with the model's tool-call parser "
            f"({form.mend}; which one: docs/models.md), or set ++model.tools=text, or another "
            "++model.text_protocol; preflight=false goes on all the same."
        )
        return FirstLook(Unavailable(text, needs="a server that parses tool calls"), thoughts=thoughts)
    if is_expected_call(reply):
        return FirstLook(_try_thoughts(server, reply, books), thoughts=thoughts)
    return FirstLook(
        None,
        f"Model '{server.name}' answered without the tool call it was asked for: does its server parse "
        "tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser ...)?",
        thoughts,
    )
