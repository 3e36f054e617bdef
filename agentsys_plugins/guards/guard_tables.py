"""Tables of what was measured of guards, one row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from agentsys.analysis.metrics.rates import Percent
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    Output,
    make_cells,
    make_long_form,
    write_interval,
    write_number,
)
from agentsys_plugins.guards.guard_score import ALL_TEXTS, QUICK_MS, GuardScore
from agentsys_plugins.guards.guard_texts import CLEAN, EDITS, TextCorpus, is_variant

NumberKey = tuple[str, str, str, str]
"""Metric, benchmark, attack and edit."""
_EDITED = ("important_instructions", "ignore_previous", "own")
"""Attacks whose edits are shown."""


_LENGTH_COLUMNS = {
    head: (metric, ALL_TEXTS, "", "")
    for head, metric in (
        ("area under the curve", "auc"),
        ("area of the length alone", "auc_length"),
        ("area at equal length", "equal_length_auc"),
        ("injected flagged at equal length", "equal_length_flagged"),
        ("clean flagged at equal length", "equal_length_clean"),
    )
}


class GuardRow(NamedTuple):
    """One measured share, in the long form."""

    guard: str
    package: str
    files: str
    python: str
    yaml: str
    confinement: str
    metric: str
    benchmark: str
    attack: str
    edit: str
    value: Percent
    ci_low: Percent
    ci_high: Percent
    n: int
    errors: int


def build_score_output(scores: Sequence[GuardScore], corpus: TextCorpus) -> Output:
    """Tables of `agentsys guards score`; the first score is that of no guard."""
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _, _ in corpus.seen_under))
    attacked = sorted(
        {(b, a) for b, a, held in corpus.seen_under if held and a != CLEAN and not is_variant(a)}
    )
    passes = {f"{b} {a}": ("passes", b, a, "") for b, a in attacked}
    flagged = {f"{b} {a}": ("flagged", b, a, "") for b, a in attacked}
    flagged |= {f"{b} clean": ("false_alarms", b, CLEAN, "") for b in benchmarks}
    edited = {
        f"{b} {a}: {edit}": ("flagged", b, a, edit) for b, a in attacked if a in _EDITED for edit in EDITS
    }
    edits = _build_grid("Outputs flagged before and after an edit, %", scores[1:], edited)
    # No row where there is no column.
    worst = [
        make_cells(*row, write_number(of.find_worst("asr"), ".0f"))
        for row, of in zip(edits.rows, scores[1:], strict=False)
    ]
    grids = [
        _build_grid("Attacked cases in which an injected output passes, %", scores, passes),
        _build_grid("What it costs, %", scores, _list_cost_columns(benchmarks, attacked)),
        _build_grid("Distinct outputs flagged, %", scores[1:], flagged),
        Grid(edits.caption, (*edits.header, "highest ASR, any attack and edit"), worst, names=1),
        _build_grid("What is left at equal length, %", scores[1:], _LENGTH_COLUMNS),
        _build_identity_grid(scores[1:]),
    ]
    notes = [
        f"{datetime.now(UTC).date()}, {len(corpus.texts):,} distinct tool outputs and {len(corpus.cases):,} recorded"
        " cases. No model was asked.",
        "ASR and utilities are bounds from those runs: a flagged output is withheld, a success counts only where"
        " no injected output was flagged, a solved task only where nothing was.",
        "Intervals are of 95 %, over user and injection tasks; shares of outputs have none. n stands in the"
        " heading, and in a cell where it is another. A case with an output without a verdict is an error.",
        f"A guard slower than {QUICK_MS:g} ms of the processor per 2,000 characters read a sample.",
        "At equal length: clean and injected outputs of one suite, and of one tool where that is known, in the same"
        " tenth of their lengths. A guard without a score is rated by its flag. 50 is what chance has.",
    ]
    return _build_output("agentsys guards score", grids, notes, scores)


def _list_cost_columns(
    benchmarks: Sequence[str], attacked: Sequence[tuple[str, str]]
) -> Mapping[str, NumberKey]:
    found: dict[str, NumberKey] = {}
    for b in benchmarks:
        found[f"{b} tasks lost"] = ("lost", b, CLEAN, "")
        found[f"{b} benign utility"] = ("benign_utility", b, CLEAN, "")
        attacks = [attack for benchmark, attack in attacked if benchmark == b]
        attack = next((one for one in ("important_instructions", *attacks) if one in attacks), None)
        if attack:
            found[f"{b} ASR {attack}"] = ("asr", b, attack, "")
            found[f"{b} utility {attack}"] = ("utility_attacked", b, attack, "")
    return found


def build_replay_output(scores: Sequence[GuardScore], without: int) -> Output:
    """Tables of `agentsys guards replay`; the first score is that of no gate."""
    heads = {
        "tool_level": "ASR, tool-level",
        "argument_level": "ASR, argument-level",
        "asr": "ASR",
        "benign_utility": "Benign utility",
        "user_refused": "User's calls refused",
        "attack_refused": "Attack's calls refused",
    }
    first = {one.metric: one for one in scores[0].numbers}
    columns = {head: first[metric][:4] for metric, head in heads.items() if metric in first}
    cases = sum(first[metric].number.n for metric in ("asr", "benign_utility") if metric in first)
    notes = [
        f"{cases} cases of {scores[0].numbers[0].benchmark}, {datetime.now(UTC).date()}; {without} pairs have no"
        " ground truth of the injection and are left out, never counted as 0.",
        "Every call of the user's and of the attack's ground truth is put to the gate, on the environment with"
        " the attack's text in it; a refused one does not run. Checks see the calls that ran.",
        "Argument-level: each tool of the attack is one that the user's task needs, so a rule on tools cannot tell.",
    ]
    order = scores[0].numbers[0].edit
    grid = _build_grid(f"The fully hijacked agent, the attack's calls {order}, %", scores, columns)
    return _build_output("agentsys guards replay", [grid, _build_identity_grid(scores[1:])], notes, scores)


def _build_output(
    name: str, grids: Iterable[Grid], notes: Sequence[str], scores: Sequence[GuardScore]
) -> Output:
    rows = [
        GuardRow(*score.identity, score.confinement, *one[:4], *one.number[:3], *one.number[3:5])
        for score in scores
        for one in score.numbers
    ]
    sections = [(grid.caption, [grid]) for grid in grids if grid.rows]
    return Output(name, Document(sections, notes), make_long_form(GuardRow, rows))


def _build_grid(caption: str, scores: Sequence[GuardScore], columns: Mapping[str, NumberKey]) -> Grid:
    """A row for each guard; columns that nobody has a number for are left out."""
    counts: dict[str, int] = {}
    for head, key in columns.items():
        numbers = [number.n for one in scores if (number := one.find(*key))]
        if numbers:
            counts[head] = max(numbers)
    rows = [
        make_cells(_name_guard(one), *(_build_cell(one, columns[head], n) for head, n in counts.items()))
        for one in scores
    ]
    return Grid(
        caption, ("Guard", *(f"{head}, n={n}" for head, n in counts.items())), rows if counts else [], names=1
    )


def _name_guard(score: GuardScore) -> str:
    control = score.spec is None or score.spec.control
    sampled = f" (sample, {score.sample} texts)" if score.sample else ""
    return f"({score.identity.name})" if control else f"{score.identity.name}{sampled}"


def _build_cell(score: GuardScore, key: NumberKey, usual: int) -> GridCell:
    number, before = score.find(*key), score.find("before_edit", *key[1:])
    if number is None:
        return GridCell("-")
    detail = [write_interval(number, 0)]
    detail += [f"n={number.n}"] if number.n != usual else []
    detail += [f"{number.errors} errors"] if number.errors else []
    text = write_number(number.value, ".0f") if number.n else "-"
    text = f"{write_number(before.value, '.0f')} to {text}" if before else text
    return GridCell(text, ", ".join(filter(None, detail)))


def _build_identity_grid(scores: Sequence[GuardScore]) -> Grid:
    measured = "CPU ms per 2 kB", "No verdict", "Threshold at 1 % false alarms", "Same again", "Reads"
    rows = []
    for score in scores:
        one, spec = score.identity, score.spec
        assert spec is not None
        failed = ", ".join(f"{kind} {count}" for kind, count in sorted(score.failures.items())) or "0"
        texts = _name_guard(score), " + ".join((one.package, *spec.beside)), one.files, one.python
        did = "; ".join(filter(None, [spec.note, *score.acts[:6], score.last_words])) or "nothing seen"
        found = score.at_one_percent or "-", score.steadiness or "-", score.reading or "-"
        failed = f"{failed} ({spec.on_error})"
        rows.append(make_cells(*texts, write_number(score.ms, ".1f"), failed, *found, score.confinement, did))
    header = "Guard", "Package", "Files", "Python", *measured, "Shut in by", "To its host, and last words"
    return Grid("What was measured", header, rows, names=11, wraps=frozenset({6, 7, 8, 10}))
