"""Earlier calls, so that the same thing is not done, or asked, twice."""

from __future__ import annotations

import json
from collections import Counter

from agentsys.defense.call_trace import TracedCall
from agentsys.defense.tool_turn import ToolOutput


class CommandLog:
    """Commands that the workers of one subtask had run, and how many of them living workers know of.

    A worker that is given up leaves its commands' effects behind. Its successor reads a cleaned output and
    may need the very same command: that one is answered with the first run's output. Two commands that are
    alike and made by living workers are two commands.
    """

    def __init__(self) -> None:
        self._outputs: dict[str, list[ToolOutput]] = {}
        self._made: Counter[str] = Counter()

    @property
    def run_count(self) -> int:
        """Number of commands that have been run."""
        return sum(len(outputs) for outputs in self._outputs.values())

    def find_output(self, call: TracedCall) -> ToolOutput | None:
        """The output of an identical command that a worker given up had run; None if there is none left."""
        key = _call_key(call)
        outputs, made = self._outputs.get(key, []), self._made[key]
        if made >= len(outputs):
            return None
        self._made[key] += 1
        return outputs[made]

    def record_run(self, call: TracedCall, output: ToolOutput) -> None:
        """Enter a command that was run now."""
        self._outputs.setdefault(_call_key(call), []).append(output)
        self._made[_call_key(call)] += 1

    def mark(self) -> Counter[str]:
        """A mark of the commands made so far, for `back_to`."""
        return Counter(self._made)

    def rewind_to(self, mark: Counter[str]) -> None:
        """Forget who made what since a mark: those workers are given up."""
        self._made = Counter(mark)


class EarlierAnswers:
    """The answers to the main agent's reading calls since the last command."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, call: TracedCall) -> str | None:
        """The answer to the very same call with the very same intent, if nothing has changed since."""
        return self._texts.get(_answer_key(call))

    def put(self, call: TracedCall, text: str, *, only_read: bool) -> None:
        """Keep an answer; forget all of them where a command may have changed what they were read from."""
        if not only_read:
            self._texts.clear()
        elif not text.startswith('{"error": '):
            self._texts[_answer_key(call)] = text


def _answer_key(call: TracedCall) -> str:
    return json.dumps([_call_key(call), call.intent])


def _call_key(call: TracedCall) -> str:
    return json.dumps([call.tool, dict(call.args)], sort_keys=True, default=str)
