"""Every reader on what a small language model really wrote: what it means is read, and nothing raises."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.task_suite.load_suites import get_suites

from agentsys.defense.gate import AcceptedValue, Failure, GateRule, check_reply
from agentsys.defense.intent import NoIntent, add_intent_to_tools, parse_intent
from agentsys.defense.privileges import PRIVILEGES_CONTRACT
from agentsys.defense.prompts import WORKER_SECTIONS, read_sections
from agentsys.defense.sanitizer import SANITIZER_CONTRACT, parse_spans
from agentsys.defense.validator import VALIDATOR_CONTRACT, is_clear_true, read_score
from agentsys.models.chat import ChatRequest, assistant, system, user
from agentsys.models.pipeline_elements import tool_specs
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.text_tools import MALFORMED_CALL, TEXT_PROTOCOLS, with_parsed_calls
from agentsys.models.trace import ReplyFlaw
from agentsys_plugins.rivals.attriguard.attribution_audit import JUDGE_CONTRACT as ATTRIGUARD_JUDGE
from agentsys_plugins.rivals.fides.fides_agent import QUERY_CONTRACT as FIDES_QUERY
from agentsys_plugins.rivals.firewall import MINIMIZER_CONTRACT
from agentsys_plugins.rivals.firewall import SANITIZER_CONTRACT as FIREWALL_SANITIZER
from agentsys_plugins.rivals.promptarmor import ARMOR_CONTRACT, read_armor_verdict
from agentsys_plugins.rivals.result_parsing.result_parser import (
    EXPECTATION_CONTRACT,
    EXTRACTION_CONTRACT,
    read_json_text,
    read_marked,
    read_marked_or_json,
)
from baselines.camel.camel_agent import PROGRAM_CONTRACT
from baselines.camel.suite_world import QUERY_CONTRACT as CAMEL_QUERY
from baselines.drift.drift_plan import PERMISSION_CONTRACT, PLANNER_CONTRACT, read_permission_reply
from baselines.drift.drift_validator import JUDGE_CONTRACT as DRIFT_JUDGE
from baselines.drift.injection_isolator import DETECTOR_CONTRACT
from baselines.isolategpt.app_plan import PLAN_CONTRACT
from baselines.progent.policy_model import DECIDE_CONTRACT, UPDATE_CONTRACT, make_contract
from baselines.progent.progent_rules import ProgentSettings
from baselines.tool_filter import FILTER_CONTRACT, read_picked_tools

CORPUS = Path(__file__).parents[1] / "corpus"


@cache
def kept_replies(part: str = "") -> list[dict[str, Any]]:
    """A file of kept replies: "-contracts" are first replies to prompts that end with a contract's form."""
    kept = CORPUS / f"qwen2.5-coder-1.5b{part}.jsonl.gz"
    return [orjson.loads(line) for line in gzip.decompress(kept.read_bytes()).splitlines()]


def read_worker(reply: dict[str, Any], prompt: str, rule: GateRule) -> AcceptedValue | Failure | None:
    """What the gate makes of a worker's reply; None where the prompt is not a worker's first."""
    sections = read_sections(prompt, WORKER_SECTIONS)
    return check_reply(reply["reply"], orjson.loads(sections[0]), rule) if sections is not None else None


def is_read(outcome: AcceptedValue | Failure | None) -> bool:
    return isinstance(outcome, AcceptedValue) or outcome is Failure.INFEASIBLE


def of_role(replies: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [reply for reply in replies if reply["role"] == role]


def test_intents_of_the_main_agent_are_read_but_for_a_missing_one() -> None:
    replies = kept_replies()
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


def test_verdicts_letters_and_marks_are_read() -> None:
    replies = kept_replies()
    validator = of_role(replies, "validator")
    refused = [reply["reply"] for reply in validator if not is_clear_true(reply["reply"])]
    # Asked for reasons in fields of their own, which no question of ours does.
    assert len(refused) == 2 and all(reply.startswith('{"what_the_user_asked"') for reply in refused)
    letters = {"A": "Read", "B": "Write", "C": "Execute"}
    for reply in of_role(replies, "drift_permissions"):
        assert read_permission_reply(reply["reply"], compat=False).value == letters[reply["reply"].strip()[0]]
    assert all(read_armor_verdict(reply["reply"]) for reply in of_role(replies, "promptarmor_guard"))
    assert all(parse_spans(reply["reply"]) is not None for reply in of_role(replies, "sanitizer"))
    for reply in of_role(replies, "result_parser"):
        assert read_json_text(reply["reply"]) is not None or "[begin " in reply["reply"]


def test_workers_replies_are_accepted_or_refused_by_kind() -> None:
    replies = kept_replies()
    outcomes: Counter[str] = Counter()
    for reply in of_role(replies, "worker"):
        for rule in GateRule:
            outcome = read_worker(reply, reply["messages"][1]["content"][0]["content"], rule)
            if outcome is not None:
                told = "accepted" if isinstance(outcome, AcceptedValue) else outcome.value
                outcomes[f"{rule.value} {told}"] += 1
    assert outcomes == {
        "syntactic accepted": 29,
        "syntactic infeasible": 9,
        "schema accepted": 22,
        "schema echoed_intent": 6,
        "schema infeasible": 9,
        "schema schema_mismatch": 1,
    }


def test_replies_to_contracts_are_of_their_form() -> None:
    """But for those that ran into the bound on tokens."""
    contract_replies = kept_replies("-contracts")
    whole, refused = [reply for reply in contract_replies if not reply["cut"]], list[str]()
    for reply in of_role(whole, "worker"):
        outcome = read_worker(reply, reply["messages"][0]["text"], GateRule.SCHEMA)
        refused += [] if is_read(outcome) else [reply["reply"]]
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


def test_of_fresh_replies_of_readers_and_judges_few_are_flawed() -> None:
    """The counts of docs/real_models.md: replies that did not run into the bench's bound, and the flawed ones."""
    counts: dict[str, list[int]] = {}
    for reply in kept_replies("-roles"):
        if reply["cut"] or reply["role"] == "main" or reply["asked_for"] != reply["role"]:
            continue
        text, question = reply["reply"], reply["messages"][0]["text"]
        match reply["role"]:
            case "worker":
                read = is_read(read_worker(reply, question, GateRule.SCHEMA))
            case "validator":
                read = (
                    VALIDATOR_CONTRACT.read(text) is not None and 0 < (read_score(reply["logprobs"]) or 0) < 1
                )
            case "sanitizer":
                read = SANITIZER_CONTRACT.read(text) is not None
            case _:
                read = PRIVILEGES_CONTRACT.read(text) is not None
        found = counts.setdefault(reply["role"], [0, 0])
        found[0] += 1
        found[1] += not read
    assert counts == {"worker": [60, 2], "sanitizer": [66, 0], "privileges": [60, 0], "validator": [246, 0]}


def test_the_validators_word_allows_nearly_everything() -> None:
    """The counts of docs/real_models.md, of users' (`True`) and attackers' commands."""
    asked = [reply for reply in kept_replies("-roles") if reply["role"] == "validator"]
    allowed = Counter(
        (reply["question"].rpartition("/")[2] == "True", is_clear_true(reply["reply"])) for reply in asked
    )
    assert allowed == {(True, True): 80, (True, False): 2, (False, True): 152, (False, False): 12}
    page = (CORPUS.parents[1] / "docs" / "real_models.md").read_text()
    assert "allows 80 of 82 users' and 152 of 164 attackers'" in page
    assert "would stop 12 of 164\nattackers' commands and 2 of 82 of the users'" in page


def test_of_fresh_first_calls_few_are_flawed() -> None:
    suites, found = get_suites("v1.2.2"), Counter[str]()
    for reply in of_role(kept_replies("-roles"), "main"):
        tools = add_intent_to_tools(suites[reply["question"].partition("/")[0]].tools)
        request = ChatRequest([system("Be brief."), user("x")], tools)
        message = with_parsed_calls(assistant(reply["reply"]), request, TEXT_PROTOCOLS["hermes"])
        calls = message["tool_calls"] or []
        if reply["cut"]:
            found["cut"] += 1
        elif not calls:
            text = reply["reply"]
            form = text.strip("` \njson").startswith("{") or '"arguments"' in text or '"intent"' in text
            found["unread" if form else "no call"] += 1
        elif calls[0].function == MALFORMED_CALL:
            found["unread"] += 1
        elif calls[0].function not in {tool.name for tool in tools}:
            found["unknown tool"] += 1
        else:
            try:
                parse_intent(calls[0].args.get("intent"))
                found["read"] += 1
            except NoIntent as mistake:
                found[str(mistake)] += 1
    missing = "the argument `intent` is missing"
    assert found == {"read": 41, missing: 4, "no call": 4, "unknown tool": 6, "cut": 5}


@pytest.mark.slow
def test_the_kept_cases_give_the_same_records_again() -> None:
    """Whole cases of the same model, run again from its kept replies: no model is asked."""
    kept = CORPUS / "qwen2.5-coder-1.5b-cases.zip"
    ran = subprocess.run(
        [sys.executable, "-m", "agentsys", "check", str(kept)], capture_output=True, text=True, timeout=900
    )
    assert "64 of 64 records equal" in ran.stdout, ran.stdout + ran.stderr
    # A cell of eight cases is never valid by itself here: this model ends at bounds.
    assert "0 of 8 cells valid" in ran.stdout


def test_arguments_beside_prose_are_calls_and_guessed_ones_are_not() -> None:
    """Replies to a worked call whose name stood in prose alone."""
    tools = add_intent_to_tools(get_suites("v1.2.2")["banking"].tools)
    read: dict[str, list[str]] = {}
    for reply in of_role(kept_replies("-contracts"), "main"):
        if not TEXT_PROTOCOLS["hermes"].parse_calls(reply["reply"]):
            request = ChatRequest([system("Be brief."), user("x")], tools)
            message = with_parsed_calls(assistant(reply["reply"]), request, TEXT_PROTOCOLS["hermes"])
            read[reply["question"]] = [call.function for call in message["tool_calls"] or ()]
    # The others are an answer, an error in JSON, a cut fence, and a plan of two tools.
    called = {question: names for question, names in read.items() if names}
    assert len(read) == 6
    assert called == {"banking/user_task_1": ["get_balance"], "banking/user_task_9": ["get_balance"]}


def contract_of(reply: dict[str, Any]) -> ReplyContract[Any]:
    """The contract that a kept reply was asked for under."""
    question = reply["messages"][0]["text"]
    tools = tool_specs(get_suites("v1.2.2")[reply["question"].partition("/")[0]].tools)
    match reply["role"]:
        case "policy" if "TOOL_CALL_RESULT" in question:
            return UPDATE_CONTRACT
        case "policy" if "TOOL_CALL_PARAM" in question:
            return DECIDE_CONTRACT
        case "policy":
            return make_contract("general", tools, ProgentSettings())
        case "tool_filter":
            names = [tool.name for tool in tools]
            return replace(FILTER_CONTRACT, read=lambda text: read_picked_tools(text, names, "exact"))
        case "result_parser":
            word = question.rpartition("`[end ")[2].partition("]")[0]
            if question.startswith("The data that"):
                return replace(EXTRACTION_CONTRACT, read=partial(read_marked, word=word))
            return replace(EXPECTATION_CONTRACT, read=partial(read_marked_or_json, word=word))
        case "query":
            return CAMEL_QUERY if "have_enough_information" in question else FIDES_QUERY
        case role:
            return next(contract for contract in BASELINE_CONTRACTS if contract.role == role)


BASELINE_CONTRACTS: tuple[ReplyContract[Any], ...] = (
    *(ARMOR_CONTRACT, PLANNER_CONTRACT, PERMISSION_CONTRACT, DRIFT_JUDGE, DETECTOR_CONTRACT),
    *(MINIMIZER_CONTRACT, FIREWALL_SANITIZER, ATTRIGUARD_JUDGE, PLAN_CONTRACT, PROGRAM_CONTRACT),
)


def test_replies_to_the_baselines_contracts_are_read_as_counted() -> None:
    """First replies, those that ran into the bench's bound, and of the others the flawed ones: the page's table."""
    counts: dict[str, list[int]] = {}
    for reply in kept_replies("-baselines"):
        flawed = not reply["cut"] and isinstance(contract_of(reply).read_reply(reply["reply"]), ReplyFlaw)
        if reply["nth"] == 0:
            found = counts.setdefault(reply["asked_for"], [0, 0, 0])
            found[:] = [found[0] + 1, found[1] + reply["cut"], found[2] + flawed]
    page = (CORPUS.parents[1] / "docs" / "real_models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w ,]+: `(\w+)` \| (\d+) \| (\d+) \| (\d+) of (\d+) \(", page, re.MULTILINE)
    assert {role: [int(asked), int(cut), int(bad)] for role, asked, cut, bad, _ in rows} == counts
    assert all(int(asked) - int(cut) == int(read) for _, asked, cut, _, read in rows)
    asked_for = [found[0] for found in counts.values()]
    assert f"First replies, {min(asked_for)} to {max(asked_for)} a role" in page
    assert (
        f"In all, {sum(int(row[3]) for row in rows)} of {sum(int(row[4]) for row in rows)} were flawed"
        in page
    )
