"""Random programs of CaMeL's language over three tools, and what the tools return, another time something else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

READERS = {"mail": ["x.org"], "words": ["y.org"], "file": ["z.org"]}
"""Tool -> who may read what it returns."""
RESULTS: dict[str, Any] = {
    "mail": "Hello Bob",
    "words": ["red", "blue", "a"],
    "file": {"k": "v1", "name": "w2"},
}
OTHERS: dict[str, list[Any]] = {
    "mail": ["Howdy Ann", "a"],
    "words": [["lit", "blue", "b"], ["a", "x y"]],
    "file": [{"k": "u1", "name": "w2"}, {"k": "v1", "a": "c", "l": "x"}],
}
"""The same tool's results had something else stood there: of the same length, and of another."""


class Writer:
    """Writes one program, which Python runs as well.

    Args:
        seed: Decides on everything.
        branches: Whether it may have branches and loops.
    """

    def __init__(self, seed: int, branches: bool) -> None:
        self.random = random.Random(seed)
        self.branches = branches
        self.names: dict[str, list[str]] = {"text": [], "number": [], "texts": [], "dict": [], "bool": []}
        self.count = 0

    def program(self) -> str:
        """Four to ten statements."""
        deep = 2 if self.branches else 0
        return "\n".join(line for _ in range(self.random.randint(4, 10)) for line in self.statement(deep))

    def statement(self, depth: int) -> list[str]:
        """An assignment, or a branch or loop with some inside."""
        kind = self.random.random()
        if depth == 0 or kind < 0.7:
            return [self.assignment()]
        before = {sort: list(names) for sort, names in self.names.items()}
        if kind < 0.85:
            head = f"if {self.of('bool', 2)}:"
            then = self.inside(depth)
            self.names = {sort: list(names) for sort, names in before.items()}
            other = self.inside(depth)
            lines = [head, *then, "else:", *other]
        else:
            name = self.fresh()
            head = f"for {name} in {self.of('texts', 2)}:"
            self.names["text"].append(name)
            lines = [head, *self.inside(depth)]
        # Names of a branch or loop may not be there afterwards.
        self.names = before
        return lines

    def inside(self, depth: int) -> list[str]:
        return [f"    {line}" for _ in range(self.random.randint(1, 2)) for line in self.statement(depth - 1)]

    def assignment(self) -> str:
        sort = self.random.choice(["text", "text", "text", "number", "texts", "dict", "bool"])
        value = self.of(sort, 3)
        known = self.names[sort]
        name = self.random.choice(known) if known and self.random.random() < 0.3 else self.fresh()
        if name not in known:
            known.append(name)
        return f"{name} = {value}"

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def of(self, sort: str, depth: int) -> str:
        """An expression of this sort."""
        if self.names[sort] and self.random.random() < 0.35:
            return self.random.choice(self.names[sort])
        makers = self.simple(sort) if depth == 0 else self.simple(sort) + 2 * self.composed(sort, depth - 1)
        return self.random.choice(makers)()

    def simple(self, sort: str) -> list[Callable[[], str]]:
        return {
            "text": [lambda: repr(self.random.choice(["a", "", "lit", "x y"])), lambda: "mail()"],
            "number": [lambda: str(self.random.randint(0, 3))],
            "texts": [lambda: "words()", lambda: "['a', 'b']"],
            "dict": [lambda: "file()", lambda: "{'k': 'c', 'l': 'd'}"],
            "bool": [lambda: self.random.choice(["True", "False"])],
        }[sort]

    def joined(self) -> str:
        """An f-string of names: with quotes inside it could not be read by every Python."""
        names = [*self.names["text"], *self.names["texts"], *self.names["number"]] or ["1"]
        return f"f'<{{{self.random.choice(names)}}}|{{{self.random.choice(names)}}}>'"

    def composed(self, sort: str, depth: int) -> list[Callable[[], str]]:
        def some(of: str) -> str:
            return self.of(of, depth)

        text: list[Callable[[], str]] = [
            lambda: f"({some('text')} + {some('text')})",
            self.joined,
            lambda: f"{some('texts')}[{some('number')}]",
            lambda: f"({some('text')})[{some('number')}]",
            lambda: f"({some('dict')})['k']",
            lambda: f"({some('dict')}).get({some('text')}, {some('text')})",
            lambda: f"({some('text')} if {some('bool')} else {some('text')})",
            lambda: f"({some('text')} or {some('text')})",
            lambda: f"({some('text')} and {some('text')})",
            lambda: f"({some('text')}).upper()",
            lambda: f"({some('text')}).replace('a', {some('text')})",
            lambda: f"({some('text')}).strip()",
            lambda: f"', '.join({some('texts')})",
            lambda: f"max({some('texts')})",
            lambda: f"sorted({some('texts')})[0]",
            lambda: f"({some('text')} * {some('number')})",
            lambda: f"str({some('number')})",
        ]
        return {
            "text": text,
            "number": [
                lambda: f"len({some('text')})",
                lambda: f"len({some('texts')})",
                lambda: f"({some('number')} + {some('number')})",
                lambda: f"({some('number')} - {some('number')})",
                lambda: f"({some('text')}).count('a')",
                lambda: f"({some('text')}).find({some('text')})",
                lambda: f"({some('number')} if {some('bool')} else {some('number')})",
            ],
            "texts": [
                lambda: f"[{some('text')}, {some('text')}]",
                lambda: f"({some('texts')} + {some('texts')})",
                lambda: f"[c for c in {some('texts')} if {some('bool')}]",
                lambda: f"[(c + {some('text')}) for c in {some('texts')}]",
                lambda: f"[{some('text')} for c in {some('text')}]",
                lambda: f"({some('text')}).split()",
                lambda: f"list({some('dict')})",
                lambda: f"list(({some('dict')}).values())",
                lambda: f"list(({some('dict')}).keys())",
                lambda: f"list(reversed({some('texts')}))",
                lambda: f"sorted({some('texts')})",
                lambda: f"list({some('text')})",
            ],
            "dict": [
                lambda: f"{{'k': {some('text')}, {some('text')}: {some('text')}}}",
                lambda: f"({some('dict')} if {some('bool')} else {some('dict')})",
            ],
            "bool": [
                lambda: f"({some('text')} == {some('text')})",
                lambda: f"({some('text')} in {some('texts')})",
                lambda: f"({some('number')} < {some('number')})",
                lambda: f"(not {some('text')})",
                lambda: f"({some('text')}).startswith({some('text')})",
                lambda: f"any({some('texts')})",
                lambda: f"(not {some('bool')})",
            ],
        }[sort]
