"""Tokens of each defense on part of the benign cases, beside the undefended agent's (all: perf/tokens.py)."""

from __future__ import annotations

from collections.abc import Iterator

from bench_table import Table

DEFENSES = ("agentsys", "agentsys_lean", "agentsys_flat", "drift", "melon", "tool_filter", "camel", "progent")


def tables(*, quick: bool) -> Iterator[Table]:
    """One row for each defense."""
    try:
        from tokens import UNDEFENDED, NotMeasured, measure
    except ImportError as error:  # the tokenizer's data come with litellm
        yield Table(f"Tokens are not measured: {error}.")
        return
    limit = 2 if quick else 5
    base = measure(UNDEFENDED, limit, ())
    rows = [(UNDEFENDED, f"{1000 * base.millions:.0f}", "1.00", f"{base.solved}/{base.cases}")]
    for name in DEFENSES:
        try:
            taken = measure(name, limit, ())
        except NotMeasured as why:
            rows.append((name, "-", "-", f"not measured: {why}"))
            continue
        ratio = taken.millions / base.millions
        rows.append((name, f"{1000 * taken.millions:.0f}", f"{ratio:.2f}", f"{taken.solved}/{taken.cases}"))
    said = (
        f"Thousands of tokens (cl100k) on {base.cases} benign cases, {limit} of each suite, simulated model: "
        "prompts, tools and calls are the defense's own, replies are not a real model's."
    )
    yield Table(said, ("Defense", "Tokens", "x none", "Solved"), rows)
