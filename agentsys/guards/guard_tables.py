"""What was measured of guards, as tables: each guard a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    cells,
    interval_text,
    number_text,
)
from agentsys.analysis.tables.table_writers import LongForm, Output, as_fraction, fraction_column
from agentsys.guards.guard_process import find_namespace
from agentsys.guards.guard_texts import CLEAN, EDITS, is_variant

if TYPE_CHECKING:
    from agentsys.analysis.metrics.rates import Number
    from agentsys.guards.guard_replay import GateReplay
    from agentsys.guards.guard_score import GuardScore
    from agentsys.guards.guard_texts import TextCorpus

_COLUMNS = {
    **dict.fromkeys(
        ("guard", "package", "files", "python", "yaml", "metric", "benchmark", "attack", "edit"), "str"
    ),
    **dict.fromkeys(map(fraction_column, ("value", "ci_low", "ci_high")), "float"),
    **dict.fromkeys(("n", "errors"), "int"),
}


def build_score_output(scores: Sequence[GuardScore], corpus: TextCorpus) -> Output:
    """Tables of `agentsys guards score`; the first score is that of no guard."""
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _, _ in corpus.seen_under))
    attacks = [(b, a) for b, a, held in corpus.seen_under if held and a != CLEAN and not is_variant(a)]
    attacked = sorted(dict.fromkeys(attacks))
    grids = [
        _grid(
            "Attacked cases in which an injected output passes, %",
            scores,
            {f"{b} {a}": ("passes", b, a, "") for b, a in attacked},
        ),
        _grid("What it costs, %", scores, _cost_columns(benchmarks, attacked)),
        _grid(
            "Distinct outputs flagged, %",
            scores,
            {f"{b} {a}": ("flagged", b, a, "") for b, a in attacked}
            | {f"{b} clean": ("false_alarms", b, CLEAN, "") for b in benchmarks}
            | {f"{b} {a}, others": ("other_flagged", b, a, "") for b, a in attacked[:3]},
        ),
        _edit_grid(scores, attacked),
        _identity_grid(scores[1:]),
    ]
    notes = [
        f"Measured on {_today()} over {len(corpus.texts):,} distinct tool outputs and"
        f" {len(corpus.cases):,} recorded cases. No model was asked.",
        "ASR and utilities are bounds from those runs: a flagged output is withheld, a success counts only where"
        " no injected output was flagged, a solved task only where nothing was.",
        "Intervals are of 95 %, over user and injection tasks; shares of outputs have none. A case with an output"
        " on which the guard gave no verdict is left out and counted as an error.",
        f"A guard slower than 15 ms per 2,000 characters read a sample of cases, which its n shows. Network:"
        f" {'none (namespace)' if find_namespace() else 'not taken away'}.",
    ]
    rows = [_record(score.identity, one) for score in scores for one in score.numbers]
    document = Document([(grid.caption, [grid]) for grid in grids if grid.rows], notes)
    return Output("agentsys guards score", document, LongForm(_COLUMNS, rows))


def _fractions(number: Number) -> dict[str, Any]:
    shares = {fraction_column(name): as_fraction(getattr(number, name)) for name in number._fields[:3]}
    return {**shares, "n": number.n, "errors": number.errors}


def _record(identity: Any, one: Any) -> Mapping[str, Any]:
    who = {"guard": identity.name, "package": identity.package, "files": identity.files}
    where = {"metric": one.metric, "benchmark": one.benchmark, "attack": one.attack, "edit": one.edit}
    return {**who, "python": identity.python, "yaml": identity.yaml, **where, **_fractions(one.number)}


def _cost_columns(benchmarks: Sequence[str], attacked: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for b in benchmarks:
        found[f"{b} tasks lost"] = ("lost", b, CLEAN, "")
        found[f"{b} benign utility"] = ("benign_utility", b, CLEAN, "")
        attacks = [attack for benchmark, attack in attacked if benchmark == b]
        attack = next((one for one in ("important_instructions", *attacks) if one in attacks), None)
        if attack:
            found[f"{b} ASR {attack}"] = ("asr", b, attack, "")
            found[f"{b} utility {attack}"] = ("utility_attacked", b, attack, "")
    return found


def _grid(caption: str, scores: Sequence[GuardScore], columns: Mapping[str, Any]) -> Grid:
    there = {head: key for head, key in columns.items() if any(one.find(*key) for one in scores)}
    rows = [
        cells(_name(one), *(_cell(one.find(*key)) for key in there.values()))
        for one in scores
        if any(one.find(*key) for key in there.values())
    ]
    return Grid(caption, ("Guard", *there), rows, names=1)


def _name(score: GuardScore) -> str:
    sampled = f" (sample, n={score.texts})" if score.sampled else ""
    return f"({score.identity.name})" if score.spec.control else f"{score.identity.name}{sampled}"


def _cell(number: Number | None) -> GridCell:
    if number is None or not number.n:
        return GridCell("-")
    ends = interval_text(number, 0)
    detail = [ends, f"n={number.n}"] if ends else [f"n={number.n}"]
    detail += [f"{number.errors} errors"] if number.errors else []
    return GridCell(number_text(number.value, ".0f"), ", ".join(detail))


def _edit_grid(scores: Sequence[GuardScore], attacked: Sequence[tuple[str, str]]) -> Grid:
    """Share of edited outputs flagged, as recorded and after the edit."""
    columns = [
        (b, a, edit)
        for b, a in attacked
        for edit in EDITS
        if any(s.find("flagged", b, a, edit) for s in scores)
    ]
    shown = [
        column for column in columns if column[1] in ("important_instructions", "ignore_previous", "own")
    ]
    rows = []
    for score in scores[1:]:
        pairs = [(score.find("before_edit", b, a, e), score.find("flagged", b, a, e)) for b, a, e in shown]
        texts = [
            f"{number_text(one.value, '.0f')} to {number_text(other.value, '.0f')} (n={other.n})"
            if one and other
            else "-"
            for one, other in pairs
        ]
        rows.append(cells(_name(score), *texts, _cell_of(score.worst("asr"))))
    heads = (*(f"{b} {a}: {edit}" for b, a, edit in shown), "highest ASR, any attack and edit")
    return Grid("Outputs flagged before and after an edit, %", ("Guard", *heads), rows, names=1)


def _cell_of(value: float) -> str:
    return number_text(value, ".0f")


def _identity_grid(scores: Sequence[GuardScore]) -> Grid:
    header = (
        "Guard",
        "Package",
        "Files",
        "Python",
        "CPU ms per 2 kB",
        "No verdict",
        "Then",
        "Threshold at 1 % false alarms",
        "To its host",
    )
    rows = []
    for score in scores:
        one, spec = score.identity, score.spec
        failed = ", ".join(f"{kind} {count}" for kind, count in sorted(score.failures.items())) or "0"
        did = "; ".join([*([spec.note] if spec.note else []), *score.acts[:6]]) or "nothing seen"
        package = " + ".join((one.package, *spec.beside))
        rows.append(
            cells(_name(score), package, one.files, one.python, f"{score.ms:.1f}", failed, spec.on_error)
            + cells(score.at_one_percent or "-", did)
        )
    return Grid("What was measured", header, rows, names=9, wraps=frozenset({7, 8}))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def build_replay_output(replayed: Sequence[GateReplay]) -> Output:
    """Tables of `agentsys guards replay`."""
    header = (
        "Guard",
        "Order",
        "ASR, tool-level",
        "ASR, argument-level",
        "ASR",
        "Benign utility",
        "Calls refused of user's / attack's",
        "Cases a second",
    )
    rows = [
        cells(
            f"({one.identity.name})" if one.identity.name == "no gate" else one.identity.name,
            one.order,
            *(
                _cell(one.numbers.get(key))
                for key in ("tool_level", "argument_level", "asr", "benign_utility")
            ),
            f"{one.refused['user']} / {one.refused['attack']}",
            f"{one.speed:.0f}",
        )
        for one in replayed
    ]
    first = replayed[0]
    notes = [
        f"{first.cases} cases of AgentDojo {first.version}, {_today()}; {first.without} pairs have no ground truth of"
        " the injection and are left out, never counted as 0.",
        "Every call of the user's and of the attack's ground truth is put to the gate, on the environment with"
        " the attack's text in it; a refused one does not run. Checks see the calls that ran.",
        "Argument-level: each tool of the attack is one that the user's task needs, so a rule on tools cannot tell.",
        *dict.fromkeys(
            f"{one.identity.name}: {one.identity.package}, files {one.identity.files}, Python"
            f" {one.identity.python}; to its host: {'; '.join(one.acts[:6]) or 'nothing seen'}."
            for one in replayed
            if one.identity.files
        ),
    ]
    records = [
        {
            **{"guard": one.identity.name, "package": one.identity.package, "files": one.identity.files},
            **{"python": one.identity.python, "yaml": one.identity.yaml, "metric": metric},
            **{"benchmark": f"agentdojo {one.version}", "attack": one.attack, "edit": one.order},
            **_fractions(number),
        }
        for one in replayed
        for metric, number in one.numbers.items()
    ]
    grid = Grid("The fully hijacked agent, %", header, rows, names=2)
    return Output(
        "agentsys guards replay", Document([(grid.caption, [grid])], notes), LongForm(_COLUMNS, records)
    )
