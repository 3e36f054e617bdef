"""Every reader on what a small language model really wrote: what it means is read, and nothing raises."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.task_suite.load_suites import get_suites

from agentsys.defense.gate import AcceptedValue, Failure, GateRule, admit_reply
from agentsys.defense.intent import NoIntent, add_intent_to_tools, parse_intent
from agentsys.defense.prompts import WORKER_SECTIONS, read_sections
from agentsys.defense.sanitizer import SANITIZER_CONTRACT, parse_spans
from agentsys.defense.validator import VALIDATOR_CONTRACT, is_clear_true, read_score
from agentsys.models.chat import ChatRequest, assistant, system, user
from agentsys.models.text_tools import TEXT_PROTOCOLS, with_parsed_calls
from baselines.drift.drift_settings import read_permission_reply
from baselines.promptarmor.armor_guard import read_armor_verdict
from baselines.result_parsing.result_parser import read_json_text

CORPUS = Path(__file__).parent / "corpus" / "qwen2.5-coder-1.5b.jsonl.gz"


@pytest.fixture(scope="module")
def replies() -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.decompress(CORPUS.read_bytes()).splitlines()]


def of_role(replies: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [reply for reply in replies if reply["role"] == role]


def test_intents_of_the_main_agent_are_read_but_for_a_missing_one(replies: list[dict[str, Any]]) -> None:
    read: Counter[str] = Counter()
    for reply in of_role(replies, "main"):
        calls = [call["args"] for call in reply["tool_calls"]]
        # Where the server read no call, it stands in the reply's text.
        written = TEXT_PROTOCOLS["hermes"].parse_calls(reply["reply"])
        assert calls or written
        for args in calls or [call.args for call in written]:
            try:
                read["nothing wanted" if not parse_intent(args.get("intent")) else "fields"] += 1
            except NoIntent as mistake:
                read[str(mistake)] += 1
    assert read == {"nothing wanted": 29, "fields": 9, "the argument `intent` is missing": 4}


def test_verdicts_letters_and_marks_are_read(replies: list[dict[str, Any]]) -> None:
    validator = of_role(replies, "validator")
    refused = [reply["reply"] for reply in validator if not is_clear_true(reply["reply"])]
    # Asked for reasons in fields of their own, which no question of ours does.
    assert len(refused) == 2 and all(reply.startswith('{"what_the_user_asked"') for reply in refused)
    letters = {"A": "Read", "B": "Write", "C": "Execute"}
    for reply in of_role(replies, "drift_permissions"):
        assert (
            read_permission_reply(reply["reply"], strictly=True).value == letters[reply["reply"].strip()[0]]
        )
    assert all(read_armor_verdict(reply["reply"]) for reply in of_role(replies, "promptarmor_guard"))
    assert all(parse_spans(reply["reply"]) is not None for reply in of_role(replies, "sanitizer"))
    for reply in of_role(replies, "result_parser"):
        assert read_json_text(reply["reply"]) is not None or "[begin " in reply["reply"]


def test_workers_replies_are_accepted_or_refused_by_kind(replies: list[dict[str, Any]]) -> None:
    outcomes: Counter[str] = Counter()
    for reply in of_role(replies, "worker"):
        sections = read_sections(reply["messages"][1]["content"][0]["content"], WORKER_SECTIONS)
        if sections is None:
            continue
        for rule in GateRule:
            outcome = admit_reply(reply["reply"], orjson.loads(sections[0]), rule)
            outcomes[
                f"{rule.value} {'accepted' if isinstance(outcome, AcceptedValue) else outcome.value}"
            ] += 1
    assert outcomes == {
        "syntactic accepted": 29,
        "syntactic infeasible": 9,
        "schema accepted": 22,
        "schema echoed_intent": 6,
        "schema infeasible": 9,
        "schema schema_mismatch": 1,
    }


@pytest.fixture(scope="module")
def contract_replies() -> list[dict[str, Any]]:
    """First replies to the prompts that end with a contract's form and worked example."""
    kept = CORPUS.with_name("qwen2.5-coder-1.5b-contracts.jsonl.gz")
    return [orjson.loads(line) for line in gzip.decompress(kept.read_bytes()).splitlines()]


def test_replies_to_contracts_are_of_their_form(contract_replies: list[dict[str, Any]]) -> None:
    """But for those that ran into the bound on tokens."""
    whole, refused = [reply for reply in contract_replies if not reply["cut"]], list[str]()
    for reply in of_role(whole, "worker"):
        sections = read_sections(reply["messages"][0]["text"], WORKER_SECTIONS)
        assert sections is not None
        intent = orjson.loads(sections[0])
        outcome = admit_reply(reply["reply"], intent, GateRule.SCHEMA)
        refused += (
            [] if isinstance(outcome, AcceptedValue) or outcome is Failure.INFEASIBLE else [reply["reply"]]
        )
    assert len(refused) <= 1, refused
    for reply in of_role(whole, "validator"):
        assert VALIDATOR_CONTRACT.read(reply["reply"]) is not None
        assert 0 < (read_score(reply["logprobs"]) or 0) < 1
    for reply in of_role(whole, "sanitizer"):
        assert SANITIZER_CONTRACT.read(reply["reply"]) is not None
    called = [call for reply in of_role(contract_replies, "main") for call in reply["calls"]]
    assert called and all(parse_intent(call["args"].get("intent")) for call in called)
    texts = [reply["reply"] for reply in of_role(contract_replies, "main") if reply["calls"]]
    assert all(TEXT_PROTOCOLS["hermes"].parse_calls(text) for text in texts)


@pytest.mark.slow
def test_the_kept_cases_give_the_same_records_again() -> None:
    """Whole cases of the same model, run again from its kept replies: no model is asked."""
    kept = CORPUS.with_name("qwen2.5-coder-1.5b-cases.zip")
    ran = subprocess.run(
        [sys.executable, "-m", "agentsys", "check", str(kept)], capture_output=True, text=True, timeout=900
    )
    # As a whole it does not hold: the run was ended before its plan was done.
    assert "+ Run again  11 of 11 records equal" in ran.stdout, ran.stdout + ran.stderr
    assert "9 planned cases had no record" in ran.stdout


def test_arguments_beside_prose_are_calls_and_guessed_ones_are_not(
    contract_replies: list[dict[str, Any]],
) -> None:
    """Replies to a worked call whose name stood in prose alone."""
    tools = add_intent_to_tools(get_suites("v1.2.2")["banking"].tools)
    read: dict[str, list[str]] = {}
    for reply in of_role(contract_replies, "main"):
        if not TEXT_PROTOCOLS["hermes"].parse_calls(reply["reply"]):
            request = ChatRequest([system("Be brief."), user("x")], tools)
            message = with_parsed_calls(assistant(reply["reply"]), request, TEXT_PROTOCOLS["hermes"])
            read[reply["question"]] = [call.function for call in message["tool_calls"] or ()]
    # The others are an answer, an error in JSON, a cut fence, and a plan of two tools.
    called = {question: names for question, names in read.items() if names}
    assert len(read) == 6
    assert called == {"banking/user_task_1": ["get_balance"], "banking/user_task_9": ["get_balance"]}
