"""A slow evaluator of the same programs that follows every character: who had a part in it.

Written apart from the product's interpreter, on plain Python semantics: a text is a list of characters
with tags, a number has tags, and an operation gives each character of its result the tags of what it was
made from. It knows what `Writer` writes, random programs
of CaMeL's language over two tools, and nothing else.
"""

from __future__ import annotations

import ast
import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TOOLS = {
    "mail": ("Hello Bob", ["x.org"]),
    "words": (["red", "blue", "a"], ["y.org"]),
    "file": ({"k": "v1", "name": "w2"}, ["z.org"]),
}
"""Tool -> what it returns, and who may read it."""


class Writer:
    """Writes one program.

    Args:
        seed: Decides on everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, list[str]] = {"text": [], "number": [], "texts": [], "dict": [], "bool": []}
        self.count = 0

    def program(self) -> str:
        """Four to ten statements."""
        return "\n".join(line for _ in range(self.random.randint(4, 10)) for line in self.statement(2))

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
                lambda: f"({some('dict')}).values()",
                lambda: f"({some('dict')}).keys()",
                lambda: f"reversed({some('texts')})",
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


Tags = frozenset[str]
NONE: Tags = frozenset()
MOST = 1_000
"""Characters of a text and items of a list."""


class TooLong(Exception):
    """The program is not worth following: a loop makes its values ever longer."""


@dataclass
class Text:
    """A text, character by character."""

    characters: list[tuple[str, Tags]]
    whole: Tags = NONE
    """Tags of the text as such: that it is this one and no other, also where it is empty."""

    @property
    def raw(self) -> str:
        return "".join(character for character, _ in self.characters)

    @property
    def tags(self) -> Tags:
        return self.whole.union(*(tags for _, tags in self.characters))


@dataclass
class Number:
    """A number or truth value."""

    raw: Any
    tags: Tags = NONE


@dataclass
class Listing:
    """A list."""

    items: list[Any]
    whole: Tags = NONE

    @property
    def raw(self) -> list[Any]:
        return [item.raw for item in self.items]

    @property
    def tags(self) -> Tags:
        return self.whole.union(*(item.tags for item in self.items))


@dataclass
class Mapped:
    """A dict with texts as keys."""

    entries: dict[str, tuple[Text, Any]]
    whole: Tags = NONE

    @property
    def raw(self) -> dict[str, Any]:
        return {key: value.raw for key, (_, value) in self.entries.items()}

    @property
    def tags(self) -> Tags:
        return self.whole.union(*(key.tags | value.tags for key, value in self.entries.values()))


def tagged(value: Any, tags: Tags) -> Any:
    """The value with tags added to every part."""
    match value:
        case Text():
            return Text([(character, own | tags) for character, own in value.characters], value.whole | tags)
        case Number():
            return Number(value.raw, value.tags | tags)
        case Listing():
            return Listing([tagged(item, tags) for item in value.items], value.whole | tags)
        case Mapped():
            entries = {key: (tagged(k, tags), tagged(v, tags)) for key, (k, v) in value.entries.items()}
            return Mapped(entries, value.whole | tags)
    raise TypeError(value)


def plain(raw: Any, tags: Tags = NONE) -> Any:
    """Plain data with the same tags everywhere."""
    if isinstance(raw, str):
        return Text([(character, tags) for character in raw], tags)
    if isinstance(raw, list):
        return Listing([plain(item, tags) for item in raw], tags)
    if isinstance(raw, dict):
        return Mapped({key: (plain(key, tags), plain(item, tags)) for key, item in raw.items()}, tags)
    return Number(raw, tags)


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.In: lambda one, other: one in other,
}


@dataclass
class Reference:
    """Runs a program."""

    tools: Mapping[str, Any]
    strict: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    controls: list[Tags] = field(default_factory=list)
    steps: int = 0

    def run(self, program: str) -> dict[str, Any]:
        self._block(ast.parse(program).body)
        return self.names

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._bind(name, self.value(value))
                case ast.If(test=test, body=then, orelse=other):
                    decided = self.value(test)
                    self.controls.append(decided.tags)
                    self._block(then if decided.raw else other)
                    self.controls.pop()
                case ast.For(target=ast.Name(id=name), iter=iterable, body=inside):
                    items = self.value(iterable)
                    self.controls.append(items.tags)
                    for item in self._items(items):
                        self._bind(name, item)
                        self._block(inside)
                    self.controls.pop()
                case _:
                    raise NotImplementedError(ast.dump(node))

    def _bind(self, name: str, value: Any) -> None:
        control = NONE.union(*self.controls) if self.strict else NONE
        self.names[name] = tagged(value, control)

    def _items(self, value: Any) -> list[Any]:
        if isinstance(value, Text):
            return [Text([one]) for one in value.characters]
        if isinstance(value, Mapped):
            return [key for key, _ in value.entries.values()]
        return list(value.items)

    def value(self, node: ast.expr) -> Any:
        found = self._value(node)
        self.steps += 1
        length = len(found.characters) if isinstance(found, Text) else len(getattr(found, "items", ()))
        if length > MOST or self.steps > 10 * MOST:
            raise TooLong
        return found

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=raw):
                return plain(raw)
            case ast.Name(id=name):
                return self.names[name]
            case ast.List(elts=items):
                return Listing([self.value(item) for item in items])
            case ast.Dict(keys=keys, values=values):
                pairs = [(self.value(k), self.value(v)) for k, v in zip(keys, values, strict=True) if k]
                return Mapped({key.raw: (key, value) for key, value in pairs})
            case ast.JoinedStr(values=parts):
                return self._joined([self.value(part) for part in parts])
            case ast.FormattedValue(value=inside):
                return self._text(self.value(inside))
            case ast.IfExp(test=test, body=then, orelse=other):
                decided = self.value(test)
                return tagged(self.value(then if decided.raw else other), decided.tags)
            case ast.BoolOp(op=op, values=operands):
                return self._boolean(isinstance(op, ast.Or), operands)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                held = self.value(operand)
                return Number(not held.raw, held.tags)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(type(op), self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                one, other = self.value(left), self.value(right)
                return Number(_OPERATORS[type(op)](one.raw, other.raw), one.tags | other.tags)
            case ast.Subscript(value=holder, slice=index):
                return self._item(self.value(holder), self.value(index))
            case ast.ListComp(elt=elt, generators=[loop]):
                return self._comprehension(elt, loop)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._function(name, [self.value(arg) for arg in args])
            case ast.Call(func=ast.Attribute(value=holder, attr=name), args=args):
                return self._method(name, self.value(holder), [self.value(arg) for arg in args])
        raise NotImplementedError(ast.dump(node))

    def _text(self, value: Any) -> Text:
        return value if isinstance(value, Text) else plain(str(value.raw), value.tags)

    def _joined(self, pieces: list[Any]) -> Text:
        whole = NONE.union(*(piece.whole if isinstance(piece, Text) else piece.tags for piece in pieces))
        return Text([one for piece in pieces for one in self._text(piece).characters], whole)

    def _boolean(self, ends_at: bool, operands: list[ast.expr]) -> Any:
        tags, value = NONE, None
        for operand in operands:
            value = self.value(operand)
            tags = tags | value.tags
            if bool(value.raw) is ends_at:
                break
        return tagged(value, tags)

    def _binary(self, op: type, one: Any, other: Any) -> Any:
        if isinstance(one, Text) and isinstance(other, Text):
            return self._joined([one, other])
        if isinstance(one, Listing) and isinstance(other, Listing):
            return Listing([*one.items, *other.items], one.whole | other.whole)
        if isinstance(one, Text):
            return Text([(c, t | other.tags) for c, t in one.characters] * other.raw, one.whole | other.tags)
        return Number(_OPERATORS[op](one.raw, other.raw), one.tags | other.tags)

    def _item(self, holder: Any, index: Any) -> Any:
        if isinstance(holder, Text):
            character, tags = holder.characters[index.raw]
            return Text([(character, tags | index.tags)], tags | index.tags)
        if isinstance(holder, Mapped):
            key, value = holder.entries[index.raw]
            return tagged(value, index.tags | key.tags)
        return tagged(holder.items[index.raw], index.tags)

    def _comprehension(self, elt: ast.expr, loop: ast.comprehension) -> Any:
        assert isinstance(loop.target, ast.Name)
        name, before = loop.target.id, dict(self.names)
        iterable, found = self.value(loop.iter), []
        whole = NONE
        self.controls.append(iterable.tags)
        for item in self._items(iterable):
            self._bind(name, item)
            tests = [self.value(test) for test in loop.ifs]
            whole = whole.union(*(test.tags for test in tests))
            if all(test.raw for test in tests):
                found.append(tagged(self.value(elt), item.tags))
        self.controls.pop()
        self.names = before
        return Listing(found, whole)

    def _function(self, name: str, given: list[Any]) -> Any:
        tags = NONE.union(*(one.tags for one in given))
        if name in self.tools:
            return self.tools[name]
        if name in ("list", "reversed"):
            items = self._items(given[0])
            return Listing(items[::-1] if name == "reversed" else items, given[0].whole)
        if name in ("sorted", "max", "min"):
            ordered = sorted(given[0].items, key=lambda item: item.raw)
            if name == "sorted":
                return tagged(Listing(ordered), tags)
            return tagged((max if name == "max" else min)(given[0].items, key=lambda item: item.raw), tags)
        if name == "str":
            return self._text(given[0])
        plain_function = {"len": len, "int": int, "bool": bool, "sum": sum, "any": any, "all": all}[name]
        return Number(plain_function(given[0].raw), tags)  # type: ignore[operator]

    def _method(self, name: str, holder: Any, given: list[Any]) -> Any:
        tags = holder.tags.union(*(one.tags for one in given))
        match name:
            case "upper" | "lower":
                return Text([(getattr(c, name)(), t) for c, t in holder.characters], holder.whole)
            case "join":
                pieces: list[Any] = []
                for item in given[0].items:
                    pieces += [holder, item] if pieces else [item]
                return tagged(self._joined(pieces), given[0].whole)
            case "get":
                found = holder.entries.get(given[0].raw)
                keys = NONE.union(*(key.tags for key, _ in holder.entries.values()))
                return tagged(found[1] if found else given[1], given[0].tags | keys)
            case "keys" | "values":
                place = 0 if name == "keys" else 1
                return Listing([entry[place] for entry in holder.entries.values()], holder.whole)
        raw = getattr(holder.raw, name)(*(one.raw for one in given))
        return plain(raw, tags)
