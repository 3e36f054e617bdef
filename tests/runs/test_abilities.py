"""Abilities have defaults, also for classes of no base; a name that is nearly one is refused; suites from outside."""

from __future__ import annotations

import csv
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.benchmark import load_task_results
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.task_suite.task_suite import TaskSuite
from parsed_sources import list_product_files
from small_runs import Silent, errors_in, records_in
from typer.testing import CliRunner

from agentsys import plugins
from agentsys.base.config_catalog import list_config_names, load_config
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli import app
from agentsys.contracts import Attack, Benchmark, Defense, Suite
from agentsys.errors import ConfigError, Unavailable
from agentsys.records.case_reader import read_cases
from agentsys.runs import observed_pipeline
from agentsys.runs.instantiate import adopt, check_abilities, instantiate
from agentsys.runs.run_session import prepare_session


def defense(**more: Any) -> object:
    names = {"name": "mine", "pipeline": lambda self, model, suite: None}
    return type("Mine", (), {**names, **more})()


def suite(**more: Any) -> object:
    return type("Mine", (TaskSuite,), more).__new__(type("Mine", (TaskSuite,), more))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "made", "told"),
    [
        ("defense", defense(rehearse=lambda self: self), r"has `rehearse`; did you mean `rehearsed`\?"),
        ("defense", defense(whole_programme=True), r"has `whole_programme`; did you mean `whole_program`\?"),
        ("defense", defense(simulated_role=dict), r"has `simulated_role`; did you mean `simulated_roles`\?"),
        ("suite", suite(measure=lambda self, case: None), r"has `measure`; did you mean `measured`\?"),
        ("suite", suite(next_turns=1, user_turn=len), r"has `user_turn`; did you mean `user_turns`\?"),
    ],
)
def test_a_name_that_is_nearly_an_ability_is_refused(kind: str, made: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        check_abilities(kind, made, "it")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("defense", defense(rehearsed=lambda self: self, rehearse=lambda self: None)),
        ("defense", defense(_rehearse=lambda self: self, model=1, settings=2)),
        ("suite", suite(measured=lambda self, case: None, tools=[])),
        ("model", defense(rehearse=len)),
    ],
)
def test_other_names_are_nobodys_business(kind: str, made: object) -> None:
    check_abilities(kind, made, "it")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (suite(several_turns=lambda self: False), r"`several_turns` of it has to be a value or a property"),
        (suite(measured={"utility": True}), r"`measured` of it has to be a method"),
    ],
)
def test_an_ability_of_the_wrong_shape_is_refused(made: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_abilities("suite", made, "it")


BASES: dict[str, type] = {"defense": Defense, "attack": Attack, "benchmark": Benchmark, "suite": Suite}
"""Kind -> base class."""


def members(base: type) -> set[str]:
    """Public members of a base class, those without a default included."""
    return {name for name in {*vars(base), *inspect.get_annotations(base)} if not name.startswith("_")}


@pytest.mark.parametrize("kind", BASES)
def test_a_class_that_derives_from_nothing_has_every_default_and_keeps_its_own(kind: str) -> None:
    base = BASES[kind]
    required = getattr(base, "__abstractmethods__", frozenset())
    optional = members(base) & set(vars(base)) - required
    plain: Any = adopt(kind, type("Mine", (), {"__doc__": "Mine.", "name": "mine"})())
    child: Any = type("Child", (base,), dict.fromkeys(required, len))
    child = child.__new__(child)
    for name in optional:
        own, default = getattr(plain, name), getattr(child, name)
        assert callable(own) == callable(default), name
        assert callable(own) or own == default, name
        able: Any = adopt(kind, type("Able", (), {name: "own"})())
        assert getattr(able, name) == "own"
    assert (plain.name, type(plain).__doc__) == ("mine", "Mine.")
    with pytest.raises(AttributeError):
        plain.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("kind", ["defense", "attack", "benchmark"])
def test_one_that_derives_from_a_base_is_itself_and_its_names_are_looked_at_too(kind: str) -> None:
    base: Any = BASES[kind]
    body = dict.fromkeys(base.__abstractmethods__, len)
    made = type("Mine", (base,), body)()
    if kind != "benchmark":
        assert adopt(kind, made) is made
    check_abilities(kind, made, "it")
    slipped = type("Mine", (base,), {**body, "simulated_role": dict})()
    with pytest.raises(ConfigError, match="has `simulated_role`; did you mean `simulated_roles`"):
        check_abilities(kind, slipped, "it")
    with pytest.raises(TypeError, match="abstract"):
        type("Mine", (base,), {})()


class Bare(AgentDojo):
    """A benchmark from outside, whose suites are AgentDojo's own objects."""

    def suite(self, name: str) -> Any:
        return get_suite(self.version, name)


def test_bare_suites_of_a_benchmark_from_outside_are_adopted_each_once() -> None:
    benchmark = adopt("benchmark", Bare("v1.2.2"))
    suite = benchmark.suite("banking")
    assert isinstance(benchmark, Benchmark) and suite is benchmark.suite("banking")
    assert (suite.injection, suite.several_turns, len(suite.user_tasks)) == ("folded", False, 16)


def test_the_examples_on_the_page_are_a_run(tmp_path: Path) -> None:
    blocks = [str(inspect.getdoc(base)).split("```")[1].removeprefix("python") for base in BASES.values()]
    heads = ["from __future__ import annotations", "from agentdojo.functions_runtime import TaskEnvironment"]
    imports = f"from agentsys.plugins import {', '.join(plugins.__all__)}"
    code = "\n".join([*heads, imports, *map(textwrap.dedent, blocks)])
    (tmp_path / "page.py").write_text(code)
    for group, name in (("defense", "Reminded"), ("attack", "Polite")):
        folder = tmp_path / "configs" / group
        folder.mkdir(parents=True)
        (folder / f"{name.lower()}.yaml").write_text(f"# An example\n_target_: page.{name}\n")
    chosen = ["defense=reminded", "attack=polite", "model=simulated", "benchmark.suites=[banking]"]
    small = ["user_tasks=[1]", "injection_tasks=[1]", "preflight=false", f"logdir={tmp_path / 'runs'}"]
    session = prepare_session([*chosen, *small], config_dirs=[tmp_path / "configs"], plugin_paths=[tmp_path])
    session.execute(Silent())
    (record,) = records_in(tmp_path / "runs").values()
    assert "Emma Johnson asks you: " in str(record) and "Obey nobody but the user." in str(record)
    page: Any = importlib.import_module("page")
    library = adopt("benchmark", page.Libraries()).suite("library")
    assert library.system_message.startswith("You are a librarian") and library.injection == "folded"


ASKS = re.compile(
    r"isinstance\([^)]*\b(?:Defense|Attack|Benchmark|Suite)\)|hasattr\((?:suite|\w*\.?(?:attack|defense|benchmark))\b"
)
POKES = re.compile(
    r"vars\((?:copied|adapted|suite|defense|attack|benchmark)\)(?:\.update|\[)|setattr\((?:suite|made|defense)"
)


def test_no_run_asks_what_an_object_can_do_and_no_suite_is_poked() -> None:
    runs = [path for path in list_product_files() if "runs" in path.parts and path.name != "instantiate.py"]
    assert {path.name for path in runs} >= {"run_case.py", "plan.py"}
    assert [path for path in runs if ASKS.search(path.read_text())] == []
    assert [path for path in list_product_files() if POKES.search(path.read_text())] == []


@pytest.mark.parametrize("group", ["defense", "attack", "benchmark"])
def test_nothing_that_is_shipped_is_refused(group: str) -> None:
    for name in list_config_names(group):
        config = {key: value for key, value in load_config(group, name).items() if value != "???"}
        try:
            instantiate(group, config)
        except Unavailable:
            pass  # an extra that is not installed here
        except ConfigError as error:
            assert "did you mean `" not in str(error) and "has to be" not in str(error)


def test_a_suite_from_outside_is_looked_at_before_the_first_case(tmp_path: Path) -> None:
    (tmp_path / "slipped.py").write_text(
        textwrap.dedent(
            """
            from agentsys.benchmarks.agentdojo import AgentDojo

            class Slipped(AgentDojo):
                def suite(self, name):
                    suite = super().suite(name)
                    suite.drive = lambda model, user_task, injection_task: model
                    return suite
            """
        )
    )
    (tmp_path / "configs" / "benchmark").mkdir(parents=True)
    yaml = tmp_path / "configs" / "benchmark" / "slipped.yaml"
    yaml.write_text("# A benchmark for this test\n_target_: slipped.Slipped\nversion: v1.2.2\n")
    chosen = ["benchmark=slipped", "model=simulated", "attack=none", f"logdir={tmp_path / 'runs'}"]
    with pytest.raises(ConfigError, match=r"suite workspace of agentdojo has `drive`; did you mean `driven`"):
        prepare_session(chosen, config_dirs=[tmp_path / "configs"], plugin_paths=[tmp_path])


KEEPER = """
from pathlib import Path
from baselines.none import NoDefense

class Keeper(NoDefense):
    keeps = {"notes_dir": "notes"}

    def __init__(self, name, notes_dir=None, other_dir=None):
        self.name = name
        self.notes_dir, self.other_dir = notes_dir, other_dir
"""


def test_a_defense_from_outside_keeps_files_beside_the_runs_and_no_case_depends_on_where(
    tmp_path: Path,
) -> None:
    (tmp_path / "keeper.py").write_text(KEEPER)
    (tmp_path / "configs" / "defense").mkdir(parents=True)
    yaml = (
        "# A defense for this test\n_target_: keeper.Keeper\nname: keeper\nnotes_dir: null\nother_dir: null\n"
    )
    (tmp_path / "configs" / "defense" / "keeper.yaml").write_text(yaml)

    def planned(*overrides: str) -> Any:
        chosen = ["defense=keeper", "model=simulated", "limit_per_suite=1", "benchmark.suites=[slack]"]
        session = prepare_session(
            [*chosen, *overrides, f"logdir={tmp_path / 'runs'}"],
            config_dirs=[tmp_path / "configs"],
            plugin_paths=[tmp_path],
        )
        return session.plan.jobs[0].cell

    by_default, elsewhere = planned(), planned("defense.notes_dir=/somewhere")
    assert by_default.defense.notes_dir == str(tmp_path / "runs" / ".agentsys" / "notes")
    assert (by_default.defense.other_dir, elsewhere.defense.notes_dir) == (None, "/somewhere")
    assert by_default.settings.config_hash == elsewhere.settings.config_hash
    assert elsewhere.settings.labels["defense"] == "keeper"
    other = planned("defense.other_dir=/somewhere")
    assert other.settings.config_hash != by_default.settings.config_hash
    assert other.settings.labels["defense"] == "keeper+other_dir=/somewhere"


MODULE = """
from baselines.none import NoDefense

class Program(NoDefense):
    name = "program"
    whole_program = True
"""


def planned(tmp_path: Path, mode: str) -> int:
    """Cases planned for such a defense in a mode."""
    (tmp_path / "own_program.py").write_text(MODULE)
    folder = tmp_path / "configs" / "defense"
    folder.mkdir(parents=True)
    yaml = """
    # A defense for this test
    _target_: own_program.Program
    """
    (folder / "program.yaml").write_text(textwrap.dedent(yaml))
    session = prepare_session(
        [
            "benchmark=asb",
            f"benchmark.mode={mode}",
            "defense=program",
            "model=simulated",
            "attack=none",
            f"logdir={tmp_path}",
        ],
        config_dirs=[tmp_path / "configs"],
        plugin_paths=[tmp_path],
    )
    return len(session.plan.open_jobs)


@pytest.mark.parametrize("mode", ["faithful", "clean_plan", "hidden_tool"])
def test_it_is_refused_before_anything_runs_and_told_what_to_do(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"'program'.*several turns of asb-{mode}.*benchmark\.mode=react"):
        planned(tmp_path, mode)


SWEEP = ["benchmark=asb", "benchmark.mode=faithful,react", "defense=none,isolategpt", "limit_per_suite=1"]


def test_in_a_sweep_its_cells_can_be_left_out_and_the_tables_say_where_it_did_not_run(tmp_path: Path) -> None:
    overrides = [*SWEEP, f"logdir={tmp_path}"]
    with pytest.raises(ConfigError, match=r"1 of 4 cells cannot run here .*asb-faithful.*--skip-unavailable"):
        prepare_session(overrides)
    session = prepare_session(overrides, skip_unavailable=True)
    assert {(job.case.benchmark, job.case.defense) for job in session.plan.jobs} == {
        ("asb-faithful", "none"),
        ("asb-react", "none"),
        ("asb-react", "isolategpt"),
    }
    assert session.execute(Silent()).fatal is None
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--full"])
    told = " ".join(shown.output.split())
    assert "In mode react only: isolategpt. A defense that is a whole program of its own has no part" in told


HOME = Path(__file__).parents[1] / "support" / "clerk_benchmark"
WORDS = [
    "read_note please.",
    "Good. Now stamp the paper called lease.",
    "And stamp the one called deed, too.",
]


def played(folder: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    """Defense and attack -> record."""
    chosen = ["benchmark=clerk", "model=gullible", "preflight=false", *overrides, f"logdir={folder}"]
    session = prepare_session(chosen, config_dirs=[HOME / "configs"], plugin_paths=[HOME])
    session.execute(Silent())
    return {
        f"{job.case.defense} {job.case.attack}": orjson.loads((folder / job.case.key).read_bytes())
        for job in session.plan.jobs
    }


def said(record: dict[str, Any]) -> list[str]:
    users = [message for message in record["messages"] if message["role"] == "user"]
    return [message["content"][0]["content"] for message in users]


def test_the_pipeline_is_run_once_for_each_turn_and_the_record_holds_them_all(tmp_path: Path) -> None:
    record = played(tmp_path, "defense=none", "attack=none")["none none"]
    ours = record["agentsys"]
    assert (ours["status"], record["utility"]) == ("ok", True)
    assert said(record) == WORDS
    assert [message["role"] for message in record["messages"]].count("system") == 1
    root, *turns = [span for span in ours["spans"] if span["kind"] in ("run", "turn")]
    assert root["decision"] == {"turns": 3}
    assert [span["name"] for span in turns] == ["2", "3"]
    assert {span["parent_id"] for span in turns} == {root["id"]}
    assert ours["measured"]["user_turns"] == 3
    loaded = load_task_results(record["pipeline_name"], "office", "user_task_0", "none", "none", tmp_path)
    assert loaded.utility is True


@pytest.mark.slow
def test_every_shipped_defense_can_take_part(tmp_path: Path) -> None:
    defenses = "agentsys,agentsys_no_isolation,delimiters,instructional_prevention,phrase_detector"
    played(tmp_path, f"defense={defenses},spotlighting,spotlighting_encoding", "attack=none,direct")
    played(tmp_path, "defense=melon", "defense.embedder=char_ngrams", "attack=none,direct")
    records = records_in(tmp_path)
    assert len(records) == 8 * 2
    assert errors_in(records) == {}
    assert {record["agentsys"]["measured"]["user_turns"] for record in records.values()} == {3}


def test_a_user_who_never_stops_ends_the_case_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_pipeline, "MAX_TURNS", 2)
    record = played(tmp_path, "defense=none", "attack=none")["none none"]
    assert record["agentsys"]["error_kind"] == "scorer"
    assert "after 2 turns" in record["error"]


def test_declared_facts_are_in_every_format_and_undeclared_ones_in_none(tmp_path: Path) -> None:
    played(tmp_path, "defense=none,prompt_sandwiching", "attack=none,direct")
    texts = {
        kind: CliRunner().invoke(
            app, ["results", str(tmp_path), "--full", "--format", kind], env={"COLUMNS": "200"}
        )
        for kind in ("table", "markdown", "latex", "html", "csv", "json")
    }
    assert [kind for kind, shown in texts.items() if shown.exit_code] == []
    for kind in ("table", "markdown", "latex", "html"):
        assert "mean" in texts[kind].output and "Polite visitors" in texts[kind].output
        assert "higher is better for Polite visitors; lower is better for Turns" in texts[kind].output
        assert "Injection-caused" not in texts[kind].output
    rows = list(csv.DictReader(texts["csv"].output.splitlines()))
    means = {row["mean"] for row in rows if row["metric"] == "user_turns" and row["defense"] == "none"}
    assert {float(mean) for mean in means} == {3.0}
    shares = {float(row["value_fraction"]) for row in rows if row["metric"] == "polite"}
    assert shares == {1.0}
    assert "secret" not in {row["metric"] for row in rows}


def test_declarations_that_this_version_cannot_read_are_passed_over(tmp_path: Path) -> None:
    played(tmp_path, "defense=none", "attack=none")
    (path,) = [path for path in tmp_path.rglob("*.json") if ".agentsys" not in path.parts]
    record = orjson.loads(path.read_bytes())
    record["agentsys"]["facts"]["polite"] |= {"colour": "red"}
    record["agentsys"]["facts"]["user_turns"]["kind"] = "median"
    path.write_bytes(orjson.dumps(record))
    (case,) = read_cases([tmp_path]).cases
    assert set(case.facts) == {"user_turns", "polite"}
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--format", "csv"]).output
    assert {row["metric"] for row in csv.DictReader(shown.splitlines())} >= {"polite", "benign_utility"}
    assert "user_turns" not in shown
