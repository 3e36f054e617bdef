"""Environments equal AgentDojo's own, with and without injections and fuzzed; `exact` puts the literal text in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
import yaml
from agentdojo.task_suite import load_suites
from agentdojo.task_suite.task_suite import TaskSuite
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.attacks.text_attacks import RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.environment_loader import (
    _SAME_IN_C,
    EnvironmentLoader,
    InjectionBreaksEnvironment,
    _reads_alike,
    find_breaking_character,
)
from agentsys.contracts import Victim
from agentsys.errors import ConfigError

VERSIONS = [version for version, suites in load_suites._SUITES.items() if suites and version[0] == "v"]
SUITES = ["workspace", "travel", "banking", "slack"]
ATTACKS = ["important_instructions", "captcha_dos"]
MANY = {"banking": 3000, "slack": 3000, "travel": 500, "workspace": 250}
VICTIM = Victim("GPT-4", "Emma Johnson")


@cache
def ours(name: str, version: str = "v1.2.2") -> TaskSuite[Any]:
    return AgentDojo(version).suite(name)


def packages(name: str, version: str = "v1.2.2") -> TaskSuite[Any]:
    return load_suites.get_suite(version, name)


def assert_same(name: str, injections: dict[str, str], version: str = "v1.2.2") -> None:
    """Both load to equal environments, or both fail."""
    try:
        expected = packages(name, version).load_and_inject_default_environment(injections)
    except Exception:  # noqa: BLE001 - whatever the package raises, ours must be its one error
        with pytest.raises(InjectionBreaksEnvironment):
            ours(name, version).load_and_inject_default_environment(injections)
        return
    loaded = ours(name, version).load_and_inject_default_environment(injections)
    assert type(loaded) is type(expected)
    assert loaded == expected
    assert loaded.model_dump() == expected.model_dump()


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize(
    "version",
    [VERSIONS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in VERSIONS[1:-1]), VERSIONS[-1]],
)
def test_environment_without_injection_equals_the_packages(name: str, version: str) -> None:
    assert_same(name, {}, version)


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("version", VERSIONS[-1:])
def test_environment_with_canaries_in_all_vectors_equals_the_packages(name: str, version: str) -> None:
    vectors = ours(name, version).get_injection_vector_defaults()
    assert_same(
        name, {vector: f"\n\n canary {{{vector}}}:\n - it's\t# {version} \n" for vector in vectors}, version
    )


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_environment_under_a_registered_attack_equals_the_packages(name: str, attack: str) -> None:
    suite, writer = ours(name), RegisteredAttack(attack)
    user_task = list(suite.user_tasks.values())[-1]
    for injection_task in list(suite.injection_tasks.values())[::5]:
        assert_same(name, dict(writer.injections(suite, user_task, injection_task, VICTIM)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("version", ["v1", "v1.2.2"])
def test_environment_under_every_attack_and_pair_equals_the_packages(name: str, version: str) -> None:
    suite, seen = ours(name, version), set()
    for attack in ("direct", "system_message", "tool_knowledge", "important_instructions", "dos", "adaptive"):
        writer = _writer(attack)
        for user_task in suite.user_tasks.values():
            for injection_task in suite.injection_tasks.values():
                injections = dict(writer.injections(suite, user_task, injection_task, VICTIM))
                if (key := tuple(sorted(injections.items()))) not in seen:
                    seen.add(key)
                    assert_same(name, injections, version)


def _writer(name: str) -> Any:
    from agentsys.attacks.text_attacks import AdaptiveAttack

    return AdaptiveAttack() if name == "adaptive" else RegisteredAttack(name)


# Whatever can matter to a scanner, a folder, a formatter or a validator, in pieces that combine.
PIECES = [
    *[
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        "  ",
        "\x85",
        "\u2028",
        "\u00a0",
        "\x00",
        "\x07",
        "\x7f",
        "\ufeff",
    ],
    *[
        '"',
        "'",
        "\\",
        "\\n",
        "\\t",
        '\\"',
        "\\\\",
        "\\x41",
        "\\u00e9",
        "\\U0001F600",
        "\\UFFFFFFFF",
        "\\uD800",
    ],
    *["\\x4", "\\q", "\\\n", "\\ ", "\\_", "\\N", "\\L", "\\0", "\\'", "\\/"],
    *[
        "{",
        "}",
        "{x}",
        "{0}",
        "---",
        "...",
        "\n---\n",
        "\n...",
        "--- ",
        "# c",
        ": ",
        "- ",
        "? ",
        "&a ",
        "*a",
        "!!int ",
    ],
    *["%", "@", "`", "|", ">", "[", "]", ",", "null", "1", "true", "<<", "2020-01-01", "a@b.co"],
    *["word", "This is a long line of words that goes on. ", "é", "😀", "\ud800", "漢", '"\n  "k": "v'],
]
pieced = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
anything = pieced | st.text(max_size=60)


@st.composite
def injection_sets(draw: st.DrawFn, name: str) -> dict[str, str]:
    vectors = sorted(packages(name).get_injection_vector_defaults())
    chosen = draw(st.lists(st.sampled_from(vectors), min_size=1, max_size=3, unique=True))
    return {vector: draw(anything) for vector in chosen}


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        *(("banking", 25), ("slack", 25), ("workspace", 4)),
        *(pytest.param(name, count, marks=pytest.mark.slow) for name, count in MANY.items()),
    ],
)
def test_fuzzed_environments_equal_the_packages(name: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(injection_sets(name))
    def equal(injections: dict[str, str]) -> None:
        assert_same(name, injections)

    equal()


QUOTED = [
    *("a", "b c", " ", "  ", "\\n", "\\\\", '\\"', "\\ ", "\\t", "\\N", "\\L", "\\0", "\\\n", "\n", "\n\n"),
    *("---", "--- ", "...", "# x", ": ", "{", "%YAML", "'", "&a"),
]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(QUOTED), max_size=14).map("".join))
def test_libyaml_reads_what_it_is_given_as_pyyaml_does(inner: str) -> None:
    if not _SAME_IN_C.fullmatch(inner):
        return
    quoted = f'"{inner}"'
    try:
        expected = yaml.safe_load(quoted)
    except yaml.YAMLError:
        with pytest.raises(yaml.YAMLError):
            yaml.load(quoted, Loader=yaml.CSafeLoader)
    else:
        assert yaml.load(quoted, Loader=yaml.CSafeLoader) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            '"{v}": "a key"\n',
            "'single {v}'\n",
            '"a": {v}\n',
            "- |\n {v}\n",
            '"a": "{v.real}"\n',
            '"a": "{}"\n',
        ),
        *('"a": "{unknown}"\n', '"a": "{v}\n', '"a": "\\x4{v}"\n', "[a, {v}]", "? {v}"),
    ],
)
def test_a_text_whose_placeholder_is_not_in_double_quotes_is_left_to_the_package(text: str) -> None:
    assert not _reads_alike(text, ("v",))


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_of_the_package_takes_the_fast_way(name: str) -> None:
    loader = ours(name)._loader
    assert loader._is_quick


@pytest.mark.parametrize("name", SUITES)
def test_cases_that_begin_together_read_the_environment_twice(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once as it is and once with the attack's text at all vectors; the rest is filled in, at whichever vector."""
    read: list[dict[str, str]] = []

    def count(self: EnvironmentLoader, injections: dict[str, str]) -> Any:
        read.append(injections)
        return read_environment(self, injections)

    read_environment = EnvironmentLoader._read_environment
    monkeypatch.setattr(EnvironmentLoader, "_read_environment", count)
    loader = EnvironmentLoader(packages(name))
    text = "\n\nAn order with blanks at its ends.\n\n"
    injections = [{vector: text} for vector in loader.get_defaults()]
    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(loader.load, injections))
    assert len(read) == 2
    assert loaded == [packages(name).load_and_inject_default_environment(one) for one in injections]


EXACT, FOLDED = AgentDojo("v1.2.2", injection="exact"), AgentDojo("v1.2.2")
HARD = [
    'say "it\'s"',
    "line\nblank\n\nline\r\nend\r",
    "{goal} {{x}} {0} }{",
    "tab\there\\t and \\ back\\slash\\",
    "😀 \U0010ffff 漢 é \u2028 \ufeff",
    "x" * 10_000,
    "\n\n  leading and trailing  \n\n",
    "---\n...\n- a: [b, {c: d}]\n# comment",
    "nul \x00 bell \x07",
    "\ue0f0injection_bill_text\ue0f1",
    "",
]


def without_sizes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_sizes(item) for key, item in value.items() if key != "size"}
    return [without_sizes(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("name", FOLDED.suite_names())
def test_the_literal_text_stands_in_every_place(name: str, text: str) -> None:
    suite = EXACT.suite(name)
    vectors = sorted(suite.get_injection_vector_defaults())
    folded = FOLDED.suite(name).load_and_inject_default_environment({v: f"CANARY-{v}-" for v in vectors})
    loaded = suite.load_and_inject_default_environment(dict.fromkeys(vectors, text))

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            for vector in vectors:
                value = value.replace(f"CANARY-{vector}-", text)
            return value
        if isinstance(value, dict):  # a drive file's size is the length of its text
            return {replaced(key): replaced(item) for key, item in value.items() if key != "size"}
        return [replaced(item) for item in value] if isinstance(value, list) else value

    assert without_sizes(loaded.model_dump()) == replaced(folded.model_dump())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=80))
def test_any_text_is_read_back_exactly(text: str) -> None:
    environment = EXACT.suite("banking").load_and_inject_default_environment(
        {"injection_incoming_transaction": text}
    )
    assert environment.bank_account.transactions[4].subject == text


def test_half_a_surrogate_pair_is_refused_by_name() -> None:
    with pytest.raises(InjectionBreaksEnvironment, match="surrogate") as raised:
        EXACT.suite("banking").load_and_inject_default_environment({"injection_bill_text": "ab\ud83d"})
    assert raised.value.position == 2


def test_a_suite_with_a_loader_of_its_own_refuses_exact() -> None:
    class OwnWay(TaskSuite[Any]):
        def load_and_inject_default_environment(self, injections: dict[str, str]) -> Any:
            raise AssertionError

        def get_injection_vector_defaults(self) -> dict[str, str]:
            return {}

    original = FOLDED.suite("banking")
    with pytest.raises(ConfigError, match=r"benchmark\.injection=folded"):
        EnvironmentLoader(OwnWay("own", original.environment_type, []), "exact")


SUITE = AgentDojo("v1.2.2").suite("banking")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('Pay "now"', 4),
        ("ends in \\", 8),
        ("C:\\quiet", 2),
        ("fine \\n but \\x4", 12),
        ("bell \x07", 5),
        ("null \x00", 5),
        ("one\n---\ntwo", 4),
        ("beyond \\U00110000", 7),
    ],
)
def test_the_error_names_suite_vector_and_character(text: str, position: int) -> None:
    with pytest.raises(InjectionBreaksEnvironment) as raised:
        SUITE.load_and_inject_default_environment(
            {"injection_bill_text": "harmless", "injection_incoming_transaction": text}
        )
    error, message = raised.value, str(raised.value)
    assert (error.suite, error.vector, error.position) == (
        "banking",
        "injection_incoming_transaction",
        position,
    )
    assert "'banking'" in message
    assert "'injection_incoming_transaction'" in message
    assert f"at character {position}" in message
    assert "benchmark.injection=exact" in message
    assert len(message.splitlines()) == 1
    assert message.isprintable()


@pytest.mark.parametrize(
    "text", ["", "plain", "{braces} {0} {{", 'an \\"escaped\\" quote', "\\\\ \\n \\u00e9", "---"]
)
def test_a_harmless_text_loads(text: str) -> None:
    assert find_breaking_character(text) is None
    assert SUITE.load_and_inject_default_environment({"injection_incoming_transaction": text})


def test_an_unknown_vector_is_the_callers_mistake_as_in_the_package() -> None:
    with pytest.raises(ValueError, match="subset of the injection vector defaults"):
        SUITE.load_and_inject_default_environment({"no_such_vector": "text"})


def test_a_broken_text_is_not_remembered_as_loaded() -> None:
    for _ in range(2):
        with pytest.raises(InjectionBreaksEnvironment):
            SUITE.load_and_inject_default_environment({"injection_bill_text": '"'})
