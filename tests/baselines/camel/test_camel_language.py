"""CaMeL's language: what it has, what it refuses, and the labels of what it makes."""

from __future__ import annotations

import builtins
import datetime

import pytest
from agentdojo.default_suites.v1.tools.types import Email
from programs_for_camel import failure, machine_with, run

from baselines.camel.language.interpreter import run_program
from baselines.camel.language.machine import ProgramError
from baselines.camel.language.operators import to_repr, to_str
from baselines.flow.labelled_values import Value, to_native

MAIL = Email(
    id_="1",
    sender="bob@x.org",
    recipients=["emma@x.org"],
    subject="Hello",
    body="Call me",
    timestamp=datetime.datetime(2024, 5, 15, 9, 30),
)
SAME_AS_PYTHON = [
    "1 + 2 * 3 ** 2 % 5 // 2 - 7 / 2",
    "-3 + +4 + ~5",
    "5 << 2 | 3 & 6 ^ 1",
    "'ab' * 3 + 'c'",
    "[1, *[2, 3], 4][1]",
    "(1, 2) + (3,)",
    "{**{'a': 1}, 'b': 2}",
    "{1, 2} | {2, 3}",
    "{1, 2} - {2}",
    "[x * y for x in [1, 2] for y in [3, 4] if x < y]",
    "{x: len(x) for x in ['a', 'bb']}",
    "{x % 2 for x in [2, 3, 4]}",
    "[(a, b) for a, b in zip([1, 2], 'xy')]",
    "f'{3.14159:.2f} {10:>5} {\"x\"!r} {[1]}'",
    "'a' if [] else 'b'",
    "0 or [] or 'x'",
    "1 and 2 and 0",
    "not ''",
    "'ab' == 'abc'",
    "'' == 'abc'",
    "[1] == [1, 2]",
    "{'a': 1} == {'a': 1, 'b': 2}",
    "'b' in 'abc'",
    "3 not in [1, 2]",
    "None is None",
    "[] is not None",
    "'abc'[1] + 'abc'[-1]",
    "{'ab': 1}['ab']",
    "sorted([3, 1, 2], reverse=True)",
    "max([1, 5, 3]) + min(4, 2)",
    "sum([1, 2], 10)",
    "list(enumerate('ab', 1))",
    "list(reversed([1, 2]))",
    "list(range(2, 10, 3))",
    "sorted([10, 9, 'b'], key=str, reverse=True) + sorted(['bb', 'a'], key=len) + sorted([2, 1], key=None)",
    "any([0, 1]) and all([])",
    "abs(-2) + divmod(7, 2)[1]",
    "int('42') + int('ff', 16) + float('1.5')",
    "str([1, 'a', None, True]) + repr('x')",
    "'Hello World'.lower().split() + 'a,b'.split(',')",
    "', '.join(['a', 'b']).replace('a', 'xx').title()",
    "'{} and {1}'.format('a', 'b') if False else '{0}-{x:>3}'.format('a', x=1)",
    "'abc'.find('c') + 'abca'.count('a')",
    "'a-b'.partition('-')",
    "{'a': 1}.get('b', 5) + {'a': 1}.get('a')",
    "list({'a': 1}.items()) + list({'b': 2}.keys()) + list({'c': 3}.values())",
    "[1, 2, 3].index(2)",
    "str(datetime(2024, 5, 15, 9, 30) + timedelta(days=1, hours=2))",
    "datetime(2024, 5, 15).strftime('%Y-%m-%d') + datetime(2024, 5, 15).isoformat()",
    "datetime.strptime('2024-05-15', '%Y-%m-%d').year",
    "(datetime(2024, 5, 15) - datetime(2024, 5, 1)).days",
    "datetime(2024, 5, 15) < datetime(2024, 5, 16)",
    "date(2024, 5, 15).weekday()",
    "len({1, 1, 2}) + len('abc') + len({'a': 1})",
    "(y := 5) + y",
]


@pytest.mark.parametrize("expression", SAME_AS_PYTHON)
def test_an_expression_means_what_it_means_in_python(expression: str) -> None:
    known = {name: getattr(datetime, name) for name in ("datetime", "timedelta", "date")}
    expected = eval(expression, known)  # noqa: S307 - the lines above, nobody else's
    value = run(expression)
    assert to_native(value) == expected
    assert to_str(value) == str(expected)
    assert to_repr(value) == repr(expected)
    assert value.full.is_trusted and value.full.is_public


def test_statements_assign_branch_loop_and_raise() -> None:
    program = """
total, names = 0, []
for name, amount in [("a", 1), ("b", 2), ("c", 3)]:
    if amount == 2:
        continue_here = True
    elif amount > 2:
        names = names + [name]
    else:
        pass
    total += amount
d = {"k": [1, 2]}
d["k"][0] = total
d["new"] = names
d
"""
    assert to_native(run(program)) == {"k": [6, 2], "new": ["c"]}


def test_an_index_with_an_effect_is_evaluated_once() -> None:
    machine = machine_with(tool="k")
    run_program("d = {'k': {'k': 1}}\nd[tool()]['k'] = 2\nd[tool()]['k'] += 1", machine)
    assert machine.world.called == ["tool", "tool"]  # type: ignore[attr-defined]
    assert to_native(machine.names["d"]) == {"k": {"k": 3}}


def test_a_provided_name_can_be_imported_and_nothing_else() -> None:
    assert to_native(run("from datetime import datetime\ndatetime(2024, 1, 1).year")) == 2024
    assert failure("from os import path").kind == "SyntaxError"


def test_classes_check_what_they_are_given_and_keep_labels_field_by_field() -> None:
    program = "class A(BaseModel):\n    a: int\n    b: list[str] | None\n"
    value = run(program + "A(a='3', b=[tool()])", tool="x")
    assert (value.full.is_trusted, to_native(value)) == (False, {"a": 3, "b": ["x"]})
    assert to_native(run(program + "A(a=1, b=None).a")) == 1
    assert run(program + "A(a=1, b=[tool()]).a", tool="x").full.is_trusted
    assert not run(program + "A(a=1, b=[tool()]).b", tool="x").full.is_trusted
    assert failure(program + "A(a='many', b=None)").kind == "ValidationError"


FROM_TOOL = [
    "x",
    "[x]",
    "[x][0]",
    "(x, 'a')[0]",
    "{'k': x}['k']",
    "{x: 'k'}[x]",
    "list({'k': x}.items())[0][1]",
    "list({'k': x}.values())[0]",
    "{'k': x}.get('k')",
    "{'k': x}.get('z', x)",
    "sorted([x, 'a'])[0]",
    "sorted([x, 'a'])[1]",
    "max(['a', x])",
    "min(x, 'a')",
    "list(zip([x], ['a']))[0][0]",
    "list(enumerate([x]))[0][1]",
    "list(reversed([x, 'a']))[1]",
    "list({x, 'a'})[0]",
    "[y for y in [x]][0]",
    "['a' for y in x][0]",
    "[y for y in {'k': x}.values()][0]",
    "f'{x}'",
    "f'a{x!r:>10}'",
    "'a' + x",
    "x * 2",
    "x[0]",
    "'abcd'[len(x)]",
    "['a', 'b', 'c', 'd'][len(x)]",
    "x.upper()",
    "'a{}'.format(x)",
    "', '.join(['a', x])",
    "'abc'.replace('b', x)",
    "'a-b'.split(x)",
    "x.split()[0]",
    "str(x)",
    "repr(x)",
    "len(x)",
    "len([x])",
    "int(len(x))",
    "hash(x)",
    "type(x)",
    "x == 'a'",
    "x in ['a']",
    "'a' in [x]",
    "not x",
    "x and 'a'",
    "x or 'a'",
    "'' or x",
    "'a' if x else 'b'",
    "x if True else 'b'",
    "(y := x)",
    "A(a=x).a",
    "A(a=x).model_dump()['a']",
    "A(a=x).model_dump_json()",
    "str(A(a=x))",
    "[*[x]][0]",
    "{**{'k': x}}['k']",
    "str(datetime(2024, 1, len(x)))",
    "datetime(2024, 1, len(x)).day",
    "str([{'k': (x,)}])",
    "sum([len(x), 1])",
    "any([x])",
    "all([x])",
    "bool(x)",
    "divmod(len(x), 2)[1]",
    "-len(x)",
]


@pytest.mark.parametrize("expression", FROM_TOOL)
@pytest.mark.parametrize("strict", [False, True])
def test_what_came_from_a_tool_stays_untrusted_and_keeps_its_readers(expression: str, strict: bool) -> None:
    program = f"class A(BaseModel):\n    a: str\nx = tool()\n{expression}"
    value = run(program, strict=strict, tool="xyz")
    assert not value.full.is_trusted
    assert value.full.readers == {"bob@x.org"}


@pytest.mark.parametrize(
    "assignment", ["y = x", "y, z = x, 1", "y = z = x", "for y in [x]:\n    pass", "y = []\ny += [x]"]
)
def test_assignments_carry_labels(assignment: str) -> None:
    assert not run(f"x = tool()\n{assignment}\ny", tool="xyz").full.is_trusted


def test_literals_beside_a_tools_value_stay_the_users() -> None:
    assert run("x = tool()\n['a', x][0]", tool="xyz").full.is_trusted
    assert run("x = tool()\n{'k': 'v', 'l': x}['k']", tool="xyz").full.is_trusted
    assert run("x = tool()\n'a' or x", tool="xyz").full.is_trusted


def test_fields_of_a_tools_object_have_its_label() -> None:
    value = run("tool().body", tool=MAIL)
    assert (to_native(value), value.full.is_trusted) == ("Call me", False)
    assert to_native(run("tool().timestamp.year", tool=MAIL)) == 2024
    assert not run("tool().timestamp.year", tool=MAIL).full.is_trusted
    assert to_native(run("[m.subject for m in [tool()] if m.sender == 'bob@x.org']", tool=MAIL)) == ["Hello"]


def test_control_dependencies_are_those_of_the_branches_and_loops_around() -> None:
    machine = machine_with(tool=["a"], other="b")
    seen: list[bool] = []
    call = machine.world.call
    machine.world.call = lambda tool, args, control: (
        seen.append(control.is_public),
        call(tool, args, control),
    )[  # type: ignore[assignment]
        1
    ]
    run_program("for x in tool():\n    other()\nother()\nif tool():\n    other()\n", machine)
    run_program(
        "z = [other() for x in tool()]\nz = [1 for x in ['a'] if tool() and other()]\nother()", machine
    )
    run_program("z = other() if tool() else 1", machine)
    assert seen == [True, False, True, True, False, True, False, True, False, True, True, False]


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("raise ValueError('none found')", "none found"),
        ("raise ValueError(tool())", None),
        ("raise ValueError(f'none in {tool()}')", None),
        ("x = {'a': tool()}\nx['b']", "'b'"),
        ("x = {}\nx[tool()]", None),
        ("tool() + 1", None),
        ("int('abc')", None),
        ("int(tool())", None),
        ("nothing", "name 'nothing' is not defined"),
        ("tool().nothing", None),
        ("while True:\n    pass", "While is not supported."),
    ],
)
def test_the_text_of_an_error_is_shown_only_if_no_tool_had_a_part_in_it(
    program: str, text: str | None
) -> None:
    error = failure(program, tool="SECRET")
    assert (error.text if error.label.is_trusted else None) == text


def _leaves(value: Value) -> list[Value]:
    parts = value.list_parts()
    return [value] if not parts else [leaf for part in parts for leaf in _leaves(part)]


def test_a_label_reaches_every_leaf_that_a_choice_decided_on() -> None:
    value = run("x = [['a'], {'k': 'b'}] if tool() else 1", tool="x")
    assert not any(leaf.full.is_trusted for leaf in _leaves(value))


def test_a_number_that_python_would_not_write_out_is_too_large() -> None:
    assert failure("print(int('f' * 5000, 16))").kind == "ResourceError"


def test_no_builtin_of_python_is_there_that_the_tables_do_not_name() -> None:
    machine = machine_with()
    missing = [name for name in dir(builtins) if name not in machine.provided and not _is_constant(name)]
    for name in missing:
        with pytest.raises(ProgramError):
            run_program(name, machine)
    assert {"eval", "exec", "getattr", "open", "__import__"} <= set(missing)


def _is_constant(name: str) -> bool:
    return name in {"True", "False", "None", "Ellipsis", "NotImplemented"}


@pytest.mark.parametrize(
    "program",
    [
        "[x for x in ['a'] if mail()]",
        "[1 for x in mail()]",
        "[x for x in [mail()]]",
        "({} if mail() else {}).keys()",
    ],
)
def test_what_decided_on_a_list_or_stands_in_it_is_in_its_label(program: str) -> None:
    assert not run(program, mail="x").full.is_trusted
