"""How often each slip of a sloppy model shows in recorded runs, ready to be given to the simulated one.

Usage: python scripts/slip_rates.py RUNS... (folders of any runs that `agentsys results` reads)

Counted are assistant messages: those of the acting agent in every format, those of workers, validators and
sanitizers where a run's spans hold them. A slip that recordings cannot show (how a quote departs from its
source) has no line. Each line: how often, of how many replies that it could have been in, and the rate.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError
from agentsys.models.simulated.slips import ALIASES, INTENT
from agentsys.models.simulated.sloppiness import PARTS
from agentsys.records.listing import listed

_REFUSAL = re.compile(
    r"\W*(i'm sorry|i am sorry|sorry,|i can't|i cannot|i can not|i'm unable|i am unable)", re.I
)
_NAMED = re.compile(r"""(?:"(?:name|function)"\s*:\s*"|<function=|\b)([A-Za-z_]\w+)(?:"|>|\()""")
_COMMA = re.compile(r",\s*[}\]]")
_AGENTS = frozenset({"run", "main"})
"""Kinds of spans whose messages are the acting agent's, which the record holds anyway."""


@dataclass
class Found:
    """What has been counted."""

    seen: Counter[str] = field(default_factory=Counter)
    """Part -> replies that have the slip."""
    possible: Counter[str] = field(default_factory=Counter)
    """Part -> replies that it could have been in."""

    def count(self, part: str, slipped: bool) -> None:
        """Book one reply."""
        self.possible[part] += 1
        self.seen[part] += slipped


def look_at(found: Found, record: dict[str, Any], tools: frozenset[str]) -> None:
    """Count a record's slips."""
    for message in _replies(record.get("messages")):
        _acting(found, message, tools)
    for span in (record.get("agentsys") or {}).get("spans") or ():
        if span.get("kind") not in _AGENTS:
            for message in _replies(span.get("messages")):
                _reading(found, str(span.get("kind")), _text(message))


def _acting(found: Found, message: dict[str, Any], tools: frozenset[str]) -> None:
    calls, text = message.get("tool_calls") or [], _text(message).strip()
    found.count("empty_replies", not calls and not text)
    found.count("refusals", not calls and _REFUSAL.match(text) is not None)
    written = {name for name in _NAMED.findall(text) if name in tools}
    if calls or written:
        found.count("calls_as_text", not calls)
    if calls:
        found.count("several_calls", len(calls) > 1)
    for call in calls:
        kinds = set(_leaves((call.get("args") or {}).get(INTENT)))
        if kinds:
            found.count("type_aliases", bool(kinds & set(ALIASES.values())))


def _reading(found: Found, kind: str, text: str) -> None:
    if kind == "validator":
        found.count("explained_verdicts", len(text.split()) > 1)
    elif "{" in text or "[" in text:
        found.count("fenced_json", "```" in text)
        found.count("trailing_commas", _COMMA.search(text) is not None)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for below in value:
            yield from _leaves(below)
    elif isinstance(value, str):
        yield value


def _replies(messages: Any) -> list[dict[str, Any]]:
    known = messages if isinstance(messages, list) else []
    return [m for m in known if isinstance(m, dict) and m.get("role") == "assistant"]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(block.get("content") or "") for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""


def _records(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for folder in folders:
        for path in listed(folder).files:
            try:
                record = json.loads(Path(path).read_bytes())
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _tools_of(record: dict[str, Any]) -> set[str]:
    calls = [call for message in _replies(record.get("messages")) for call in message.get("tool_calls") or ()]
    return {str(call.get("function")) for call in calls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    folders = parser.parse_args().runs
    found, tools, cases = Found(), set[str](), 0
    try:
        for record in _records(folders):
            tools |= _tools_of(record)
        for record in _records(folders):
            cases += bool(record.get("messages"))
            look_at(found, record, frozenset(tools))
    except ConfigError as error:
        raise SystemExit(f"Error: {error}") from None
    if not found.possible:
        raise SystemExit(f"Error: no recorded conversation in {', '.join(map(str, folders))}")
    print(f"{cases} cases")
    rates = {part: found.seen[part] / found.possible[part] for part in PARTS if found.possible[part]}
    for part, rate in rates.items():
        print(f"{part:20} {found.seen[part]:7} of {found.possible[part]:7}  {rate:.4f}")
    given = ",".join(f"{part}:{rate:.4f}" for part, rate in rates.items() if rate > 0)
    print(f"model.sloppiness='{{{given}}}'")


if __name__ == "__main__":
    main()
