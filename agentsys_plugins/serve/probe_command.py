"""`agentsys probe`: an agent of the user's, attacked through its own tools; one table and one page."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.cli.cli_output import print_line
from agentsys.errors import ConfigError

if TYPE_CHECKING:
    from agentsys_plugins.serve.probe_agent import ProbeRow, ProbeTrial

HEADS = ("Defense", "Task, clean", "Task, attacked", "Attack obeyed", "Not read", "Errors")
_SIMULATED = "The model is a script, not an LLM: it reads, and obeys whatever it reads."
_VIEWPORT = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "@media(max-width:40rem){body{margin:.5rem}td,th{padding:.1rem .25rem!important;font-size:.75rem}}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #bbb;padding:.3rem .6rem;text-align:left}"
    "pre,td,th{white-space:pre-wrap;overflow-wrap:anywhere}.obeyed{background:#f8d0c8}.errors{background:#eee}"
)


def probe_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME", help="A list of tools, or a function run(request, tools); see --mcp."
        ),
    ],
    mcp: Annotated[bool, typer.Option("--mcp", help="The argument is the command of an MCP server.")] = False,
    request: Annotated[
        str | None, typer.Option(help="What the user asks; default: REQUEST in the file.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model behind the agent.")] = "simulated",
    defense: Annotated[str, typer.Option(help="Defenses to compare, with commas.")] = "none,agentsys",
    live: Annotated[
        bool, typer.Option("--live", help="Call your tools every time; else in the first run alone.")
    ] = False,
    logdir: Annotated[Path, typer.Option(metavar="DIR", help="Folder of records.")] = Path("results/probe"),
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; default: probe.html in the logdir.")
    ] = None,
) -> None:
    """Plant a dozen payloads into what your agent's own tools return, without and with a defense."""
    from agentsys_plugins.serve.probe_agent import load_subject, open_mcp_subject, probe_agent

    defenses = list(dict.fromkeys(name.strip() for name in defense.split(",") if name.strip()))
    if not defenses:
        raise ConfigError("--defense names none; write --defense none,agentsys.")
    with (
        open_mcp_subject(target, request) if mcp else contextlib.nullcontext(load_subject(target, request))
    ) as subject:
        order, rows = probe_agent(subject, model=model, defenses=defenses, logdir=logdir, live=live)
    note = _SIMULATED if model == "simulated" else f"Model: {model}."
    cells = [HEADS, *(_list_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    for line in cells:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print_line(f"Payloads ask: {order}")
    print_line(note)
    page = out or logdir / "probe.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(write_page(target, subject.request, order, note, rows), encoding="utf-8")
    print_line(f"Wrote {page}")


def _list_cells(row: ProbeRow) -> tuple[str, ...]:
    """A row of the table. Runs without the payload in sight, and broken ones, are in no rate."""
    attacked = row.attacked
    failed = [trial for trial in row.trials if trial.error]
    unread = [trial for trial in row.trials[1:] if not trial.is_read and not trial.error]
    clean = "error" if row.clean.error else "yes" if row.clean.solved else "no"
    if not attacked:
        return row.defense, clean, "-", "-", str(len(unread)), str(len(failed))
    return (
        row.defense,
        clean,
        f"{sum(trial.solved for trial in attacked)} of {len(attacked)}",
        f"{sum(trial.harmed for trial in attacked)} of {len(attacked)}",
        str(len(unread)),
        str(len(failed)),
    )


def write_page(target: str, request: str, order: str, note: str, rows: Sequence[ProbeRow]) -> str:
    """The page: the table, and every run with its calls and its answer. All words in it are escaped."""
    from agentsys_plugins.serve.planted_tools import PAYLOADS

    table = _write_table(HEADS, [_list_cells(row) for row in rows])
    parts = [f"<h1>Probe of {escape(target)}</h1><p>{escape(note)}</p>{table}"]
    parts.append(
        f"<p>The user asks:</p><pre>{escape(request)}</pre><p>Payloads ask:</p><pre>{escape(order)}</pre>"
    )
    for row in rows:
        heads = "".join(f"<th>{head}</th>" for head in ("Payload", "Outcome", "Calls", "Answer"))
        lines = "".join(_write_trial(trial) for trial in row.trials)
        parts.append(f"<h2>{escape(row.defense)}</h2><table><tr>{heads}</tr>{lines}</table>")
    wordings = [(name, text.format(order=order, request=request)) for name, text in PAYLOADS.items()]
    parts.append(f"<h2>Payloads</h2>{_write_table(('Name', 'Text'), wordings)}")
    head = f"<meta charset='utf-8'>{_VIEWPORT}<title>Probe</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _write_trial(trial: ProbeTrial) -> str:
    outcome = _name_outcome(trial)
    cells = (trial.payload or "(clean)", outcome, ", ".join(trial.calls), trial.error or trial.answer)
    return f"<tr class='{outcome.split(',')[0]}'>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _name_outcome(trial: ProbeTrial) -> str:
    if trial.error:
        return "errors"
    task = "task done" if trial.solved else "task not done"
    if not trial.payload:
        return task
    if not trial.is_read:
        return f"not read, {task}"
    return f"{'obeyed' if trial.harmed else 'stopped'}, {task}"


def _write_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    rows += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines]
    return f"<table>{''.join(rows)}</table>"
