"""`PageAnswers`: what the live page asks its server for, as text ready to be sent."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentsys import __version__
from agentsys.analysis.html_report.page import Live, PageContent, data_block, page, page_title
from agentsys.analysis.html_report.text_store import TextStore
from agentsys.analysis.html_report.trajectory import stored_json, trajectory_view
from agentsys.analysis.tables.escaping import plain
from agentsys.records.unreadable import UnreadableRecord
from agentsys.view.followed import FollowedRuns
from agentsys.view.measured import MeasuredRuns

NEWS_AFTER_S = 15.0
"""How long a question for news is held if there is none."""
_AT_ONCE = 1000
"""Rows that are in the page itself, so that it is there at once; it asks for the others when it is shown."""
_MOST_ASKED = 500
"""Characters of a search."""
_ROOM = 1_000_000
"""Numbers kept free for the texts of one case; no case has so many."""


class PageAnswer(NamedTuple):
    """The body of a response."""

    content_type: str
    text: str


@dataclass
class PageAnswers:
    """PageAnswers by path. All may be asked at once, from many threads."""

    runs: FollowedRuns
    measured: MeasuredRuns
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells this server from the one before: a page of that one is loaded again."""
    _cases_sent: itertools.count[int] = field(default_factory=itertools.count)

    def answer(self, path: str, query: Mapping[str, str]) -> PageAnswer | None:
        """The answer to a path (`/...`) and what stands behind `?`; None where there is nothing."""
        first, _, rest = path.removeprefix("/").partition("/")
        if first == "case" and rest:
            return self._case(rest)
        known: dict[str, Callable[[], PageAnswer | None]] = {
            "/": self._page,
            "/changes": lambda: self._changes(query),
            "/numbers": self._numbers,
            "/search": lambda: self._search(query.get("q", "")[:_MOST_ASKED]),
        }
        return known[path]() if path in known else None

    def _page(self) -> PageAnswer:
        version, rows = self.runs.rows(_AT_ONCE)
        folders = [plain(str(folder)) for folder in self.runs.folders]
        shown = self.measured.shown
        content = PageContent(
            title=page_title(folders),
            folders=folders,
            made_by=f"agentsys {__version__}",
            numbers=shown.numbers if shown else None,
            index=data_block(rows),
            live=Live(self.run, version),
        )
        return PageAnswer("text/html; charset=utf-8", page(content))

    def _numbers(self) -> PageAnswer | None:
        shown = self.measured.shown
        return PageAnswer("text/html; charset=utf-8", shown.html) if shown else None

    def _changes(self, query: Mapping[str, str]) -> PageAnswer:
        """The news since a version; a page of another server, which counts otherwise, waits for none."""
        since, numbers = _number(query, "since"), _number(query, "numbers")
        waits = NEWS_AFTER_S if query.get("run", self.run) == self.run else 0.0
        news = self.runs.changes(since, waits, lambda: self.measured.version != numbers)
        return _json(
            {
                "run": self.run,
                "version": news.version,
                "rows": news.rows,
                "gone": news.gone,
                "numbers": self.measured.version,
                "reading": self.runs.reading_files,
                "planned": self.measured.shown.planned if self.measured.shown else "",
            }
        )

    def _case(self, case_id: str) -> PageAnswer | None:
        case = self.runs.case(case_id)
        if case is None:
            return None
        # The page keeps the texts of all cases it has asked for: no two may have one number.
        store = TextStore(first=next(self._cases_sent) * _ROOM)
        view = trajectory_view(case, stored_json(case.source), store)
        return _json({"texts": list(enumerate(store.listed(), store.first)), "trajectory": view})

    def _search(self, query: str) -> PageAnswer:
        """Ids of the cases whose files hold a text, however JSON spells it; ASCII letters of either case."""
        sought = {
            json.dumps(query, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "replace").lower()
            for ascii_only in (True, False)
        }
        found = [name for name, case in self.runs.cases() if query and _holds(case.source, sought)]
        return _json({"ids": found})


def _holds(source: str, sought: set[bytes]) -> bool:
    try:
        content = Path(source).read_bytes().lower()
    except (OSError, ValueError, UnreadableRecord):
        return False
    return any(text in content for text in sought)


def _number(query: Mapping[str, str], name: str) -> int:
    value = query.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else 0


def _json(value: object) -> PageAnswer:
    return PageAnswer("application/json", data_block(value))
