"""Replies of the corpus inside cases: each is an error, told in the record, or what was said, under any defense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from played_corpus import MODELS, play_corpus
from wire_corpus import FILES, WireCase, load, name_of

from agentsys.models.chat import ChatModel, Consequence, ErrorKind
from agentsys.models.endings import Ending
from agentsys.models.text_tools import MALFORMED_CALL
from agentsys.models.trace import ACTING_ROLES
from agentsys.records.schema import CaseRecord, StoredCall
from agentsys_plugins.serve.agent_server import build_served_model

DEFENSES = ("none", "agentsys", "agentsys_lean", "drift", "camel", "melon")
WITH_TOOLS = ("none", "agentsys", "agentsys_lean", "melon")
"""Those whose acting agent has tools on the wire; the others' calls are text, and nobody can be told of one there."""
A_FEW = {
    *(
        "zai/network_error",
        "vllm/name_channel",
        "vllm/tool_calls_without_call",
        "copilot/each_call_its_choice",
    ),
    *("azure/filtered_with_text", "fireworks/length_half_call", "openai/no_reason", "openai/refusal"),
    *("qwen/arguments_two_objects", "vllm/answer_in_thoughts", "minimax/base_resp", "openai/stop"),
}


@cache
def served() -> ChatModel:
    return build_served_model()


def is_playable(case: WireCase) -> bool:
    """Whether it says enough by itself: no tools of its own, and no end of the run, which would end the others'."""
    if case["wire"] not in MODELS or any(not isinstance(tool, str) for tool in case.get("tools", ())):
        return False
    if case.get("request") or case.get("model"):
        return False
    error = case["expect"].get("error")
    return error is None or ErrorKind(error).consequence in (Consequence.RETRY, Consequence.END_CASE)


def played(wire: str, names: set[str] | None = None) -> list[Path]:
    found = [path for path in FILES if load(path)["wire"] == wire and is_playable(load(path))]
    return [path for path in found if names is None or name_of(path) in names]


def check(case: WireCase, record: CaseRecord, defense: str) -> str:
    """What is wrong with a record of a case in which the acting agent's server played this reply; "" if nothing."""
    expect, tools = case["expect"], defense in WITH_TOOLS
    error, ending = expect.get("error"), expect.get("ending")
    if ending == Ending.PAUSED:
        error = ErrorKind.SERVER_ERROR.value
    # Slips are mended by the schema of a tool on offer, and what cannot be read is told to who may call one.
    told_to_nobody = (MALFORMED_CALL in expect.get("odd", {}) or expect.get("mended")) and not tools
    if error is not None or told_to_nobody:
        wanted = ErrorKind.MALFORMED_REPLY.value if told_to_nobody else error
        return "" if record.error_kind == wanted else f"{record.status} {record.error_kind}, not {wanted}"
    acting = [call for span in record.spans for call in span.calls if call.role in ACTING_ROLES]
    found = [
        call for call in acting if (call.ending, call.reason) == (ending, expect.get("reason", call.reason))
    ]
    if not found:
        return f"no reply ended as {ending}: {[(call.ending, call.reason) for call in acting]} ({record.error_kind})"
    if tools and (missing := expect.get("odd", {}).keys() - count_odd(found).keys()):
        return f"not told: {missing}"
    ran = [(span.name, span.decision["args"]) for span in record.spans if span.kind == "tool"]
    wanted_calls = [(name, args) for name, args in expect.get("calls", ()) if name == "get_balance"]
    if defense == "none" and any(call not in ran for call in wanted_calls):
        return f"not run: {wanted_calls}, but {ran}"
    return ""


def count_odd(calls: Sequence[StoredCall]) -> Counter[str]:
    return sum((Counter(call.odd) for call in calls), Counter[str]())


def find_wrong(paths: Sequence[Path], defense: str, folder: Path) -> dict[str, str]:
    cases = [load(path) for path in paths]
    records = play_corpus(served(), cases, defense, folder)
    assert len(records) == len(cases)
    results = zip(paths, cases, records, strict=True)
    wrong = {name_of(path): check(case, record, defense) for path, case, record in results}
    return {name: what for name, what in wrong.items() if what}


@pytest.mark.parametrize("defense", DEFENSES)
def test_a_few_replies_end_their_cases_in_a_known_way(tmp_path: Path, defense: str) -> None:
    paths = played("chat", A_FEW)
    assert len(paths) == len(A_FEW)
    assert find_wrong(paths, defense, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("defense", DEFENSES)
def test_every_reply_of_the_corpus_ends_its_case_in_a_known_way(
    tmp_path: Path, defense: str, wire: str
) -> None:
    assert find_wrong(played(wire), defense, tmp_path) == {}
