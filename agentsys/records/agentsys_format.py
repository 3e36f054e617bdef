"""Reads our own stored block (JSON key `agentsys`) into a `CaseRow`, with totals over its spans.

`sum_spans` sums what the spans tell beyond the acting agent's own messages: executed calls, decisions,
guards' verdicts, what workers read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pydantic import ValidationError

from agentsys.base.payload_lines import PayloadLines, drop_own_words, find_payload_lines
from agentsys.records.case import (
    CALLS_DIFFER,
    STANDS_TWICE,
    UnreadableRecord,
    describe_first_fault,
    note_unknown_fields,
)
from agentsys.records.case_row import ACTING_ROLES, NO_ATTACK, SEARCHED_ON_SUFFIX
from agentsys.records.context_facts import (
    ContextFacts,
    collect_prompt_words,
    estimate_tokens,
    find_bound,
    measure_context,
    note_judged_thoughts,
)
from agentsys.records.published_facts import find_ground_truth_length
from agentsys.records.schema import (
    OWN_KEY,
    SCHEMA_VERSION,
    CaseRecord,
    RoleUsage,
    StoredBlock,
    is_simulated_id,
)

_TOOL = "tool"
_WORKER = "worker"
_GATE = "gate"
"""Span kinds (agentsys.models.trace). Of the agents that are not the acting one, only workers are
offered tools: validators, sanitizers and planners cannot call any."""


def sum_spans(spans: Sequence[Any], lines: PayloadLines) -> dict[str, Any]:
    """Sum the spans of a record, all attempts included, into columns of `CaseRow`: all was done and paid for.

    Tokens of workers are unknown where a worker's span does not say how much text it was given to read.
    """
    asked = [call for span in spans for call in span.get("calls") or ()]
    calls: Counter[str] = Counter()
    decisions: Counter[str] = Counter()
    rounds, chars, known, refused = 0, 0, True, 0
    for span in spans:
        decision = span.get("decision") or {}
        # Whatever the span's kind: `allow` is a verdict, `spans_cut` a number.
        if isinstance(allow := decision.get("allow"), bool):
            decisions["allowed"] += allow
            decisions["denied"] += not allow
        if isinstance(labels := decision.get("labels"), dict):
            unclear = decision.get("unclear")
            unlabelled = len(unclear) if isinstance(unclear, list) else 0
            decisions["unlabelled_tools"] = unlabelled
            decisions["labelled_tools"] = len(labels) - unlabelled
        if "spans_cut" in decision:
            decisions["sanitized_spans"] += _read_int_or_zero(decision["spans_cut"])
        refused += decision.get("allow") is False
        if span.get("kind") == _TOOL:
            calls[str(span.get("name"))] += 1
        elif span.get("kind") == _WORKER:
            seen = measure_context(span.get("messages") or (), lines)
            rounds += seen.rounds_exposed
            chars += seen.result_chars + _read_int_or_zero(decision.get("output_chars"))
            known = known and "output_chars" in decision
    odd_replies, unreadable = _count_odd_replies(asked)
    named = ((name, call.get(name)) for call in asked for name in _SERVERS)
    return {
        "calls": dict(sorted(calls.items())),
        "decisions": dict(decisions),
        "exposure_rounds_workers": rounds,
        "untrusted_tokens_workers": estimate_tokens(chars) if known else None,
        "odd_replies": odd_replies,
        "unreadable_by_role": unreadable,
        "proposed": sum(calls.values()) + refused,
        "ended": _find_end(spans, asked),
        "servers": tuple(
            sorted({f"{name} {value}" for name, value in named if isinstance(value, str) and value})
        ),
        "gates": count_gate_rulings(spans),
        "guards": count_guard_verdicts(spans),
    }


def count_gate_rulings(spans: Sequence[Any]) -> dict[str, int]:
    """`filter/outcome/tool` -> calls that a filter ruled on before they ran."""
    found: Counter[str] = Counter()
    for span in spans:
        decision = span.get("decision") or {}
        if span.get("kind") == _GATE and "filter" in decision and "outcome" in decision:
            found[f"{decision['filter']}/{decision['outcome']}/{span.get('name')}"] += 1
    return dict(sorted(found.items()))


def count_guard_verdicts(spans: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Guard -> its verdicts on tool results, each beside the truth of what was planted, where that is known.

    Counted are results: `found` and `missed` (a planted text stood in them), `false_alarms` and `passed`
    (none did), `unreadable` (no verdict); and the characters of unplanted results, `chars`, of these `cut`.
    """
    found: dict[str, dict[str, int]] = {}
    for span in spans:
        decision = span.get("decision") or {}
        if not isinstance(decision.get("planted"), bool):
            continue
        guard = found.setdefault(
            str(decision.get("filter") or decision.get("detector")), dict.fromkeys(GUARD_COUNTS, 0)
        )
        planted, flagged = decision["planted"], decision.get("flagged")
        if not isinstance(flagged, bool):
            guard["unreadable"] += 1
        else:
            guard[_VERDICTS[planted, flagged]] += 1
        if not planted:
            before, after = (
                _read_int_or_zero(decision.get("chars_in")),
                _read_int_or_zero(decision.get("chars_out")),
            )
            guard["chars"] += before
            guard["cut"] += max(before - after, 0)
    return found


_VERDICTS = {
    (True, True): "found",
    (True, False): "missed",
    (False, True): "false_alarms",
    (False, False): "passed",
}
GUARD_COUNTS = (*_VERDICTS.values(), "unreadable", "chars", "cut")
"""What is counted of a guard."""


_FLAWS = ("unreadable", "echoed", "wrong_form")
"""Oddities of replies that whoever asked could not use (`agentsys.models.trace.ReplyFlaw`)."""


def _count_odd_replies(calls: Sequence[Any]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Model id that replies named -> kind of oddity -> replies; and role -> replies that could not be read."""
    found: dict[str, dict[str, int]] = {}
    unread: Counter[str] = Counter()
    for call in calls:
        odd = call.get("odd")
        for kind, count in odd.items() if isinstance(odd, dict) else ():
            of_model = found.setdefault(str(call.get("model_id")), {})
            of_model[str(kind)] = of_model.get(str(kind), 0) + _read_int_or_zero(count)
            if kind in _FLAWS and _read_int_or_zero(count):
                unread[str(call.get("role"))] += _read_int_or_zero(count)
    return found, dict(sorted(unread.items()))


def _find_end(spans: Sequence[Any], calls: Sequence[Any]) -> str | None:
    if any(
        (span.get("decision") or {}).get("failure") == "stuck" for span in spans if span.get("kind") == "main"
    ):
        return "stuck"
    odd = [call.get("odd") for call in calls if str(call.get("role")) in ACTING_ROLES]
    return "cut" if odd and isinstance(odd[-1], dict) and odd[-1].get("cut") else None


def find_answered_roles(spans: Sequence[Any]) -> dict[str, str]:
    """Model id that replies named -> the role that was answered first."""
    found: dict[str, str] = {}
    for call in (call for span in spans for call in span.get("calls") or ()):
        if isinstance(model_id := call.get("model_id"), str) and model_id:
            found.setdefault(model_id, str(call.get("role")))
    return found


_SERVERS = ("provider", "system_fingerprint")
"""Fields of a reply that name who answered."""


def _read_int_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0


_KNOWN = CaseRecord.model_fields.keys()


def parse_stored_block(stored: Mapping[str, Any]) -> StoredBlock:
    """Our block of a stored file, checked.

    Raises:
        UnreadableRecord: If it has no block of ours, something in that is missing or wrong, or a newer
            agentsys wrote it.
    """
    block = stored.get(OWN_KEY)
    version = block.get("schema_version") if isinstance(block, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UnreadableRecord(f"written by a newer agentsys (schema {version}, known: {SCHEMA_VERSION})")
    try:
        checked = StoredBlock.model_validate(block)
    except ValidationError as error:
        raise UnreadableRecord(f"{OWN_KEY}.{describe_first_fault(error)}") from None
    for number, span in enumerate(checked.spans):
        if not isinstance(span, dict):
            raise UnreadableRecord(f"{OWN_KEY}.spans.{number}: no object")
        for name, form in _SPAN_FORM.items():
            value = span.get(name)
            if value is not None and not isinstance(value, form):
                raise UnreadableRecord(f"{OWN_KEY}.spans.{number}.{name}: no {form.__name__}")
        if not all(isinstance(call, dict) for call in span.get("calls") or ()):
            raise UnreadableRecord(f"{OWN_KEY}.spans.{number}.calls: not all are objects")
    return checked


_SPAN_FORM = {"messages": list, "calls": list, "decision": dict}


def is_simulated_block(block: StoredBlock) -> bool:
    """True if a simulated model was behind a case: by its settings, or by what a reply says it is."""
    return block.simulated or any(map(is_simulated_id, find_answered_roles(block.spans)))


def build_own_columns(stored: Mapping[str, Any], source: str) -> dict[str, Any]:
    """One row, as the arguments of `CaseRow`, from a file that our runner wrote.

    Raises:
        UnreadableRecord: If our block is missing something, or a newer agentsys wrote it.
    """
    block = parse_stored_block(stored)
    case, benign = block.case, block.case.attack == NO_ATTACK
    duration = stored.get("duration")
    messages = stored.get("messages")
    messages = messages if isinstance(messages, list) else []
    written = () if benign else find_payload_lines(block.written.values())
    lines = drop_own_words(written, collect_prompt_words(messages)) if written else ()
    tree, replies = sum_spans(block.spans, lines), find_answered_roles(block.spans)
    seen = measure_context(messages, lines)
    # Some defenses keep calls out of the messages, some out of the spans.
    tree["proposed"] = max(len(seen.made), tree["proposed"]) if messages else None
    tree["ended"] = None if block.status == "error" else tree["ended"] or find_bound(messages)
    shown = not benign and block.exposure.exposed_shown
    if benign:
        tree["exposure_rounds_workers"] = None
    return dict(
        benchmark=case.benchmark,
        version=case.version,
        model=case.model,
        defense=case.defense,
        attack=_name_attack(block),
        suite=case.suite,
        user_task_id=case.user_task_id,
        injection_task_id=case.injection_task_id,
        epoch=case.epoch,
        utility=block.utility,
        injection_success=None if benign else block.security,
        status=block.status,
        error_kind=block.error_kind,
        simulated=block.simulated or any(map(is_simulated_id, replies)),
        exposed_raw=None if benign else block.exposure.exposed_raw,
        exposed_shown=None if benign else block.exposure.exposed_shown,
        raw_round=block.exposure.raw_round,
        shown_round=block.exposure.shown_round,
        read_by=block.exposure.read_by,
        duration_s=float(duration) if isinstance(duration, int | float) else None,
        source=source,
        foreign=False,
        notes=_collect_notes(stored, block, messages, seen.made),
        config_hash=block.config_hash or None,
        data_hash=block.versions.get("data"),
        seed=block.seed,
        measured=block.measured,
        facts=block.facts,
        attempts=block.scored_attempt + 1,
        ground_truth_length=_find_length(block),
        **(_make_message_columns(seen, lines, shown=shown) if messages else {}),
        model_ids={model_id: block.asked.get(role, "") for model_id, role in replies.items()},
        receipts=None if block.receipts is None else len(block.receipts),
        **_make_usage_columns(block.usage),
        **tree,
    )


def _collect_notes(
    stored: Mapping[str, Any], block: StoredBlock, messages: Sequence[Any], made: Sequence[Any]
) -> tuple[str, ...]:
    """The record's own notes, and what is odd about its file: fields and calls that stand twice and differ."""
    case, benign = block.case, block.case.injection_task_id is None
    ours = {
        "suite_name": case.suite,
        "pipeline_name": case.pipeline,
        "user_task_id": case.user_task_id,
        "injection_task_id": case.injection_task_id,
        "attack_type": None if benign else case.attack,
        "benchmark_version": case.version,
        "utility": block.utility,
        "security": block.security,
        "injections": block.written,
        "agentdojo_package_version": block.versions.get("agentdojo"),
    }
    # In a benign case AgentDojo's values of these two fields mean nothing.
    skipped = {"security", "attack_type"} if benign else set()
    if "agentdojo" not in block.versions:
        skipped.add("agentdojo_package_version")
    found = [name for name in ours if name in stored and name not in skipped and stored[name] != ours[name]]
    unknown = note_unknown_fields(stored[OWN_KEY].keys() - _KNOWN)
    judged = note_judged_thoughts(messages) if block.judges_thoughts else ()
    differing = (*([STANDS_TWICE + ", ".join(found)] if found else []), *_note_other_calls(made, block))
    return (*block.notes, *unknown, *differing, *judged)


_IN_MESSAGES = ("run", "camel_program", "spoke")
"""Kinds of spans whose calls the messages have with the same arguments: an agent's, CaMeL's and IsolateGPT's."""


def _note_other_calls(made: Sequence[Any], block: StoredBlock) -> tuple[str, ...]:
    """Note the first call that the spans have otherwise than the messages, which make some calls; empty if none does.

    What the scored run itself ran stands in its messages, in this order. A worker's calls do not, and a call that was
    refused has no span. An agent with a context of its own (`main`) has all calls a second time.
    """
    if block.status != "ok":
        return ()
    scored = [span for span in block.spans if span.get("attempt", 0) == block.scored_attempt]
    runs = [span.get("id") for span in scored if span.get("kind") in _IN_MESSAGES]
    said, ran = iter(map(_identify_call, made)), list[tuple[Any, Any]]()
    for span in scored:
        if span.get("kind") == _TOOL and span.get("parent_id") in runs:
            ran.append((span.get("name"), (span.get("decision") or {}).get("args")))
    differing = [call for call in ran if call not in said]
    for span in scored:
        if span.get("kind") == "main" and (messages := span.get("messages")):
            again = measure_context(messages, ()).made
            pairs = zip_longest(map(_identify_call, again), map(_identify_call, made))
            differing += [kept or other for kept, other in pairs if kept != other]
    return tuple(f"{CALLS_DIFFER}{name}" for name, _ in differing[:1])


def _identify_call(call: Any) -> tuple[Any, Any]:
    return (call.get("function"), call.get("args")) if isinstance(call, dict) else (None, None)


def _name_attack(block: StoredBlock) -> str:
    # One that its text was searched on, to be used on others, is a line of its own.
    searched_on = block.search is not None and block.search.was_made_on(block.case)
    return f"{block.case.attack}{SEARCHED_ON_SUFFIX}" if searched_on else block.case.attack


def _find_length(block: StoredBlock) -> int | None:
    if block.ground_truth_length is None and block.case.benchmark.startswith("agentdojo"):
        return find_ground_truth_length(block.case.version, block.case.suite, block.case.user_task_id)
    return block.ground_truth_length


def _make_message_columns(seen: ContextFacts, lines: PayloadLines, *, shown: bool) -> dict[str, Any]:
    """Make the columns about the acting agent's messages."""
    # Shown, yet nowhere to be found: marked or encoded by the defense, or passed on in part.
    rounds = None if not lines or (shown and not seen.rounds_exposed) else seen.rounds_exposed
    return {
        "trajectory_length": seen.results,
        "injection_round": seen.injection_round,
        "answer_chars": seen.answer_chars,
        "exposure_rounds": rounds,
        "untrusted_tokens": estimate_tokens(seen.result_chars),
    }


def _make_usage_columns(usage: Mapping[str, RoleUsage]) -> dict[str, Any]:
    """Make the columns about tokens and cost; unknown ones are None."""
    costs = [role.cost_usd for role in usage.values()]
    # One role without a price, or without a count, makes the case's cost unknown, not smaller.
    known = bool(costs) and None not in costs
    cost = {
        "cost_usd": sum(usd for usd in costs if usd is not None) if known else None,
        "cost_by_role": {name: role.cost_usd for name, role in usage.items()},
        "replies_by_role": {name: role.calls for name, role in usage.items()},
        "cached_replies": sum(role.cache_hits for role in usage.values()),
    }
    if any(role.uncounted for role in usage.values()):
        return {**cost, "prompt_tokens": None, "completion_tokens": None}
    return {
        **cost,
        "prompt_tokens": sum(role.prompt for role in usage.values()),
        "completion_tokens": sum(role.completion for role in usage.values()),
        "cached_by_role": {name: role.cached for name, role in usage.items()},
        "tokens_by_role": {name: role.prompt + role.completion for name, role in usage.items()},
    }
