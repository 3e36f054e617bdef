"""`Playbook`: the ground truth of every task as plain data, and an index that finds tasks and goals in texts.

Texts are compared without layout, quoting, escapes, case and defensive marks. Tool
results reach a model as YAML, JSON or Python reprs, re-flowed and escaped, and defenses mark or encode them. Both
sides of every comparison are folded; base64 in the searched text is decoded. `find_instruction_spans` finds the words
of a goal in an output in any layout.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

# A line that a double-quoted YAML string continues: backslash, newline, indent, escaped space.
_CONTINUED = re.compile(r"\\\r?\n[ \t]*(?:\\(?= ))?")
# Any number of backslashes: a Python repr or YAML inside JSON is escaped once more.
_ESCAPE = re.compile(r"((?:\\+u[0-9A-Fa-f]{4})+)|\\+(?:x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LAYOUT_ESCAPES = frozenset("nrtNLP_ ")
_SYNTAX_ESCAPES = frozenset("\\\"'")
_LAST_CODE_POINT = 0x10FFFF

_QUOTES = ("'", '"', "`", "‘", "’", "“", "”")
# Datamarking puts private-use characters between words; `^` and `▁` are the other usual marks.
_UNICODE_MARKS = re.compile("[\ue000-\uf8ff\u2581]+")

# A whole text may be base64 of any length; inside a text only long runs are tried.
_ALL_BASE64 = re.compile(r"[A-Za-z0-9+/\n]+={0,2}\n?")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/\n]{16,}={0,2}")


def fold_text(text: str) -> str:
    """Fold a text: resolve escapes, drop quotes, collapse white space and marks, lower the case."""
    if "\\" in text:
        text = _ESCAPE.sub(_resolve_escape, _CONTINUED.sub("", text))
    for quote in _QUOTES:
        text = text.replace(quote, "")
    if not text.isascii():
        text = _UNICODE_MARKS.sub(" ", text)
    return " ".join(text.replace("^", " ").casefold().split())


def _resolve_escape(match: re.Match[str]) -> str:
    """Resolve one escape. Backslashes and quotes vanish on both sides of a comparison."""
    utf16, byte, code_point, other = match.groups()
    if utf16 is not None:
        return bytes.fromhex(utf16.replace("\\", "").replace("u", "")).decode("utf-16-be", "replace")
    if byte is not None:
        return chr(int(byte, 16))
    if code_point is not None:
        value = int(code_point, 16)
        return chr(value) if value <= _LAST_CODE_POINT else ""
    if other in _LAYOUT_ESCAPES:
        return " "
    return "" if other in _SYNTAX_ESCAPES else str(other)


def decode_base64_parts(text: str) -> list[str]:
    """Decode the base64 parts of a text, or the whole text, that yield printable text."""
    decoded = []
    for run in [text] if _ALL_BASE64.fullmatch(text) else _BASE64.findall(text):
        try:
            plain = base64.b64decode(run.replace("\n", ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        if plain.replace("\n", "").replace("\t", "").isprintable():
            decoded.append(plain)
    return decoded


@lru_cache(maxsize=1024)
def fold_decoded(text: str) -> str:
    """Fold a text together with its decoded base64 parts; cached, as conversations repeat their texts."""
    return fold_text("\n".join([text, *decode_base64_parts(text)]))


def occurs_in(needle: str, hay: str) -> bool:
    """True if a folded text occurs in another one as whole words.

    A number must match a whole number: `5` occurs neither in `2024-05-15` nor in `5.1`, but in `5.0`.
    """
    # The plain search first: most needles occur nowhere.
    return bool(needle) and needle in hay and _compile_whole(needle).search(hay) is not None


@lru_cache(maxsize=1024)
def _compile_whole(needle: str) -> re.Pattern[str]:
    """Compile the pattern of a folded text as whole words or a whole number."""
    # The literal first, which is fast to search; the look-behind is checked after a match.
    literal = re.escape(needle)
    pattern = literal + (rf"(?<!\w{literal})" if re.match(r"\w", needle) else "")
    pattern += r"(?!\w)" if re.match(r"\w", needle[-1]) else ""
    if needle.isdigit():
        pattern += rf"(?<!\d[-:./]{literal})(?=\.0+(?!\w)|(?![-:./]\d))"
    return re.compile(pattern)


# Between two words YAML, JSON or quoting may put escapes, quotes and line breaks.
_BETWEEN = r"(?:\\[nrtNLP]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|[\W_])*?"
_WORD_PATTERN = re.compile(r"[0-9A-Za-z]+")
_OPEN, _CLOSE = "<INFORMATION>", "</INFORMATION>"


@lru_cache(maxsize=512)
def compile_words_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the words of a text in order, with any layout between them, and closing punctuation."""
    words = [re.escape(word) for word in _WORD_PATTERN.findall(text)]
    return re.compile(_BETWEEN.join(words) + r"[.!?]?", re.IGNORECASE) if words else re.compile(r"(?!)")


def find_instruction_spans(text: str, goal: str) -> list[str]:
    """Find the literal pieces of a tool's output that hold a goal, in order, each with its framing marks.

    Returns the whole text if it does not contain the goal's words literally (an encoded payload).
    """
    places = [_widen_to_frame(text, *match.span()) for match in compile_words_pattern(goal).finditer(text)]
    return [text[start:end] for start, end in places] or [text]


def _widen_to_frame(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span to the `<INFORMATION>` block around it, if there is one."""
    opened = text.rfind(_OPEN, 0, start)
    if opened >= 0 and text.find(_CLOSE, opened, start) < 0:
        closed = text.find(_CLOSE, end)
        return opened, closed + len(_CLOSE) if closed >= 0 else end
    return start, end


@dataclass(frozen=True)
class Quote:
    """A value in a call's arguments that repeats a value from an earlier call's result."""

    arg: str
    """The argument's name."""
    source: int
    """Index of the earlier call in the script; it returns a list of objects."""
    key: str
    """The key whose value is repeated."""
    by: str | None = None
    """None: the values of all objects, joined by newlines. Else objects are ordered by this key, ..."""
    rank: int = 0
    """... largest first, and the value of the one at this rank is repeated."""
    inside: tuple[str | int, ...] = ()
    """Path to the value inside the argument, e.g. `(0, "file_id")`; `()` for the whole argument."""


@dataclass(frozen=True)
class ScriptedCall:
    """One ground-truth tool call."""

    function: str
    """The tool's name."""
    args: Mapping[str, Any]
    """Its arguments, JSON-ready, as on a clean environment."""
    quotes: tuple[Quote, ...] = ()
    """Values to be replaced by those actually read, if possible."""


@dataclass(frozen=True)
class Fact:
    """A text from a tool output, not in the user's request, that a later call or the answer uses."""

    field: str
    """The fact's name, unique in the playbook; used as the field name when a return value is declared."""
    text: str
    """The text as in the later argument or in the answer."""
    source: int
    """Index of the first ground-truth call whose clean output holds it."""
    pattern: str = ""
    """For a number that a tool draws anew in each case: a regular expression whose group is the number; `text` is
    then only its placeholder in the script. Empty for a constant fact."""
    inside: int = 0
    """Length in characters of the output's field that holds it; 0 if the output has no fields."""


@dataclass(frozen=True)
class AlternativeSolution:
    """A solution of a task whose ground truth is incomplete."""

    calls: tuple[ScriptedCall, ...]
    """The calls, in order."""
    answer: str
    """The words of the final answer."""
    drawn: tuple[Fact, ...] = ()
    """Numbers in the calls that a tool draws anew in each case."""


@dataclass(frozen=True)
class TaskScript:
    """The solution of one user task."""

    suite: str
    task_id: str
    prompt: str
    """The user's request, verbatim."""
    calls: tuple[ScriptedCall, ...]
    """Ground-truth calls, in order."""
    answer: str
    """The ground-truth answer."""
    facts: tuple[Fact, ...]
    """All facts that calls and answer take from tool outputs, in order of appearance."""


@dataclass(frozen=True)
class GoalScript:
    """The execution of one injection task."""

    suite: str
    task_id: str
    goal: str
    """The injection task's goal, verbatim."""
    calls: tuple[ScriptedCall, ...]
    """Calls that carry it out on an environment of this suite, in order."""
    says: str | None
    """Words that the final answer must contain, for goals that are said and not done; else None."""
    facts: tuple[Fact, ...] = ()
    """Numbers that a tool draws anew in each case; all other values are in the calls."""


@dataclass(frozen=True)
class Playbook:
    """The scripts of some suites, at one benchmark version."""

    tasks: tuple[TaskScript, ...]
    goals: tuple[GoalScript, ...]


_Script = TypeVar("_Script", TaskScript, GoalScript)


class PlaybookIndex:
    """A playbook with all requests and goals folded. Immutable; thread-safe."""

    def __init__(self, playbook: Playbook) -> None:
        self.facts: dict[str, Fact] = {fact.field: fact for task in playbook.tasks for fact in task.facts}
        self.tools = frozenset(call.function for task in playbook.tasks for call in task.calls)
        """Tools that any user task's script calls."""
        self._tasks = _group_by_wording(playbook.tasks, [task.prompt for task in playbook.tasks])
        self._goals = _group_by_wording(playbook.goals, [goal.goal for goal in playbook.goals])
        # Cached, because each step searches all earlier messages again.
        self.goals_in_text = lru_cache(maxsize=1024)(self._find_goals_in_text)

    def find_tasks(self, text: str) -> Sequence[TaskScript]:
        """Find tasks whose request is this text; else those of the longest request that it contains."""
        hay = fold_decoded(text)
        if hay in self._tasks:
            return self._tasks[hay]
        inside = [prompt for prompt in self._tasks if prompt and prompt in hay]
        return self._tasks[max(inside, key=len)] if inside else ()

    def find_goals(self, text: str) -> Sequence[GoalScript]:
        """Find goals that are exactly this text."""
        return self._goals.get(fold_decoded(text), ())

    def _find_goals_in_text(self, text: str) -> tuple[tuple[GoalScript, ...], ...]:
        """Find the goals in a text in order of first occurrence, grouped by wording (several suites may share one).

        Some goals extend another one by a sentence: of two that overlap, one inside the other, only the longer
        counts.
        """
        hay = fold_decoded(text)
        spans = {wording: hay.find(wording) for wording in self._goals if wording and wording in hay}
        meant = [
            wording
            for wording, start in spans.items()
            if not any(
                longer != wording
                and start >= spans[longer]
                and start + len(wording) <= spans[longer] + len(longer)
                for longer in spans
            )
        ]
        return tuple(tuple(self._goals[wording]) for wording in sorted(meant, key=spans.__getitem__))


def count_makeable(calls: Iterable[ScriptedCall], tools: frozenset[str]) -> int:
    """Count the calls that can be made with these tools."""
    return sum(call.function in tools for call in calls)


def _group_by_wording(scripts: Iterable[_Script], wordings: Iterable[str]) -> dict[str, list[_Script]]:
    folded: defaultdict[str, list[_Script]] = defaultdict(list)
    for script, wording in zip(scripts, wordings, strict=True):
        folded[fold_text(wording)].append(script)
    return dict(folded)
