"""Values that nobody expects of a tool, each by a name, made anew for every use."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import itertools
import json
import pathlib
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from pydantic import BaseModel


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, "two")


class Flag(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: str


@dataclass
class Node:
    name: str
    below: list[Any] = field(default_factory=list)


class Record(BaseModel):
    model_config = {"arbitrary_types_allowed": True}

    name: str = "n"
    held: Any = None


class Mute:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Shouting(str):
    def __str__(self) -> str:
        return "shouted"


def nest_list(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def nest_mapping(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = {"a": value}
    return value


def nest_model(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = Record(held=value)
    return value


def nest_dataclass(levels: int) -> Any:
    node = Node("end")
    for _ in range(levels):
        node = Node("n", [node])
    return node


def make_cycle(kind: str) -> Any:
    if kind == "list":
        items: list[Any] = ["a"]
        items.append(items)
        return items
    if kind == "mapping":
        mapping: dict[str, Any] = {"a": 1}
        mapping["self"] = mapping
        return mapping
    if kind == "model":
        record = Record()
        record.held = [record]
        return record
    node = Node("a")
    node.below.append(node)
    return node


def make_bomb() -> Any:
    value: Any = ["lol"] * 10
    for _ in range(12):
        value = [value] * 10
    return value


ODD_VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "empty text": lambda: "",
    "blank": lambda: "  \t\n",
    "nul": lambda: "a\0b",
    "half a surrogate pair": lambda: "x\ud800y",
    "brackets in a text": lambda: "[" * 600 + "]" * 600,
    "braces in a text": lambda: '{"a":' * 600 + "1" + "}" * 600,
    "unclosed brackets": lambda: "[" * 5000,
    "yaml anchors": lambda: "a: &a [x, x]\n" + "\n".join(f"b{n}: [*a, *a]" for n in range(50)),
    "json with nan": lambda: '{"a": NaN, "b": Infinity, "c": 1e999}',
    "json of a huge number": lambda: '{"n": ' + "9" * 5000 + "}",
    "a long text": lambda: "word " * 100_000,
    "a long line of words": lambda: "a1" * 250_000,
    "bytes": lambda: b"\xff\xfe\0abc",
    "bytearray": lambda: bytearray(b"abc"),
    "set": lambda: {"b", "a", 3},
    "frozen set of pairs": lambda: frozenset({("a", 1)}),
    "tuple": lambda: ("a", ("b", 2), None),
    "named tuple": lambda: Point(1, "y"),
    "deque": lambda: deque([1, 2]),
    "date": lambda: datetime.date(2024, 5, 1),
    "time with zone": lambda: datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC),
    "duration": lambda: datetime.timedelta(days=3, seconds=5),
    "nan": lambda: float("nan"),
    "infinite": lambda: [float("inf"), -float("inf")],
    "huge int": lambda: 10**5000,
    "huge int in a record": lambda: {"n": [10**5000]},
    "decimal": lambda: decimal.Decimal("1.10"),
    "fraction": lambda: [fractions.Fraction(1, 3)],
    "complex": lambda: 3 + 4j,
    "uuid and path": lambda: [uuid.UUID(int=1), pathlib.PurePosixPath("/a")],
    "enums": lambda: [Colour.RED, Colour.PAIR, Flag.A | Flag.B],
    "endless generator": lambda: itertools.count(),
    "generator": lambda: (letter for letter in "abc"),
    "function": lambda: len,
    "class": lambda: Record,
    "namespace": lambda: SimpleNamespace(a=1),
    "exception": lambda: ValueError("said"),
    "object without a text": Mute,
    "text of another class": lambda: Shouting("quiet"),
    "tuples as keys": lambda: {("a", 1): "x", None: "y", 3: "z", True: "t"},
    "objects as keys": lambda: {Colour.RED: 1, datetime.date(2024, 5, 1): 2},
    "mixed list": lambda: [1, "a", None, 2.5, {"b": [True]}, Record(held=("c",))],
    "ordered mapping of models": lambda: OrderedDict(a=Record(), b=Record(held=Record())),
    "nested dataclasses": lambda: Node("a", [Node("b"), {"c": Node("d")}]),
    "deep list": lambda: nest_list(900),
    "very deep list": lambda: nest_list(50_000),
    "deep mapping": lambda: nest_mapping(900),
    "deep models": lambda: nest_model(300),
    "deep dataclasses": lambda: nest_dataclass(900),
    "deep json": lambda: json.dumps(nest_list(200)),
    "cyclic list": lambda: make_cycle("list"),
    "cyclic mapping": lambda: make_cycle("mapping"),
    "cyclic model": lambda: make_cycle("model"),
    "cyclic dataclass": lambda: make_cycle("dataclass"),
    "one list many times over": make_bomb,
}
