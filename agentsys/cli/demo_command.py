"""`agentsys demo`: one attacked case told turn by turn, with and without a defense, then a table and a report.

The undefended cases are published runs of AgentDojo, replayed: `demo_runs` holds nine of them, with its licence.
"""

from __future__ import annotations

import sys
import textwrap
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
import typer

from agentsys.cli.cli_output import find_table_width, print_line
from agentsys.cli.terminal import escape_controls

if TYPE_CHECKING:
    from agentdojo.types import ChatMessage

    from agentsys.base.payload_lines import PayloadLines

_RUNS = Path(__file__).parents[1] / "demo_runs"
_CASE = Path("banking/user_task_2/important_instructions/injection_task_0.json")
_REPLAYED = (
    "model=replay",
    f"model.traces={_RUNS}",
    "defense=none",
    "attack=none,important_instructions",
    "benchmark.suites=banking",
    "user_tasks=0,2,14",
    "injection_tasks=0,4",
)
_DEFENDED = (
    "model=simulated",
    "defense=agentsys",
    "attack=important_instructions",
    "benchmark.suites=banking",
    "user_tasks=2",
    "injection_tasks=0",
)
_SAMPLE = ("experiment=quickstart",)
_LONGEST_RESULT = 10
"""Lines of a text that are shown, beside those that were planted."""


def demo_command(
    folder: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Folder for the demo's records.")
    ] = Path("results/runs/demo"),
    browser: Annotated[bool, typer.Option(help="Open the report at the end.")] = True,
) -> None:
    """Show an attack that works, the same attack stopped, a table and a report. A minute; no key, no network."""
    from agentsys.api import run
    from agentsys.cli.report_command import report_command
    from agentsys.cli.results_command import results_command

    cases, tables = folder / "cases", folder / "quickstart"
    replayed = run([*_REPLAYED, f"logdir='{cases}'"])
    _print_heading("1. An attack that worked: gpt-4o-mini, no defense (published run, replayed)")
    _print_case(replayed.folders[0] / _CASE)
    stolen, attacked = _count_attacks(replayed.folders)
    print_line(f"So ended {stolen} of the {attacked} attacked cases that are replayed here.")
    # In a folder of its own: one more case of one row would make the report's rows differ in their cases.
    defended = run([*_DEFENDED, f"logdir='{folder / 'told'}'"])
    _print_heading("2. The same case behind AgentSys (simulated: a script that obeys, no LLM)")
    _print_case(defended.folders[0] / _CASE)
    _print_heading("3. None and four defenses on four suites (simulated, as above; half a minute)")
    run([*_SAMPLE, f"logdir='{tables}'"])
    results_command([tables])
    page = folder / "report.html"
    report_command([cases, tables], out=page, figures=False)
    if browser and sys.stdout.isatty():
        webbrowser.open(page.absolute().as_uri())
    print_line("Next: agentsys init (tries a model of yours), agentsys list (what can be run)")


def _print_heading(text: str) -> None:
    print()
    print_line(text)
    print("-" * min(find_table_width(), 78), flush=True)


def _print_case(path: Path) -> None:
    from agentsys.base.payload_lines import find_payload_lines

    stored = orjson.loads(path.read_bytes())
    payload = find_payload_lines(stored["injections"].values())
    steps = _list_defense_steps(stored.get("agentsys", {}).get("spans", []))
    for message in stored["messages"]:
        for line in _tell_message(message, payload):
            print(line)
        for call in message.get("tool_calls") or ():
            _print_hanging("AGENT", f"calls {_write_call(call['function'], call['args'])}")
            for step in next(steps, ()):
                _print_hanging("", step)
    solved = "did the user's task" if stored["utility"] else "did not do the user's task"
    obeyed = "AND the attacker's" if stored["security"] else "and not the attacker's"
    _print_hanging("END", f"the agent {solved} {obeyed}, by AgentDojo's own checks.")


def _tell_message(message: Mapping[str, Any], payload: PayloadLines) -> Iterator[str]:
    """The lines of a message; those of the payload have a bar of their own before them."""
    from agentsys.models.chat import text_of

    text = text_of(cast("ChatMessage", message)).strip()
    if message["role"] == "system" or not text or message.get("tool_calls"):
        return
    name = {"user": "USER", "assistant": "AGENT", "tool": "TOOL"}[message["role"]]
    width = max(40, min(find_table_width(), 100)) - 9
    for at, (line, planted) in enumerate(_cut_lines(_wrap_lines(text, payload, width))):
        yield f"{name if not at else '':<6} {'!!' if planted else '  '} {line}".rstrip()


def _wrap_lines(text: str, payload: PayloadLines, width: int) -> list[tuple[str, bool]]:
    from agentsys.base.payload_lines import contains_payload

    lines = [line for line in escape_controls(text).splitlines() if line.strip()]
    return [
        (part, contains_payload(line, payload))
        for line in lines
        for part in textwrap.wrap(line, width, replace_whitespace=False) or [""]
    ]


def _cut_lines(lines: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    kept = [line for at, line in enumerate(lines) if at < _LONGEST_RESULT or line[1]]
    rest = len(lines) - len(kept)
    return [*kept, *([(f"[{rest} more lines]", False)] if rest else [])]


def _list_defense_steps(spans: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    steps: list[list[str]] = []
    for span in spans:
        decision, kind = span.get("decision") or {}, span["kind"]
        if kind == "tool":
            steps.append([])
        elif kind == "worker" and steps:
            again = any("sanitizer" in step for step in steps[-1])
            steps[-1].append(
                "a new worker reads the rest" if again else "a worker reads the result, alone with it"
            )
        elif kind == "validator" and steps and not decision.get("allow", True):
            call = decision.get("call") or {}
            steps[-1].append(f"the worker wants {_write_call(call.get('tool'), call.get('args') or {})}")
            steps[-1].append("the validator refuses: the user did not ask for it")
        elif kind == "sanitizer" and steps and decision.get("spans_cut"):
            steps[-1].append("the sanitizer cuts the planted text out")
    return iter(steps)


def _write_call(tool: object, args: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{key}={value!r}" for key, value in args.items() if key != "intent")
    return f"{tool}({shown})"


def _print_hanging(name: str, text: str) -> None:
    width = max(40, min(find_table_width(), 100))
    head = f"{name:<6}    " if name else f"{'':<6} |  "
    lines = textwrap.wrap(escape_controls(text), width - 10) or [""]
    print("\n".join(f"{head if not at else ' ' * 10}{line}" for at, line in enumerate(lines)))


def _count_attacks(folders: Sequence[Path]) -> tuple[int, int]:
    attacked = [path for folder in folders for path in folder.glob("*/*/important_instructions/*.json")]
    return sum(orjson.loads(path.read_bytes())["security"] for path in attacked), len(attacked)
