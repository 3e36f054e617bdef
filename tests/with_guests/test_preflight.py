"""Before the first case: cells that cannot run here are named; pairs that an attack does not apply to are left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentdojo.task_suite import task_suite
from paid_server import Answer, calls, fails, paid_model, paid_server, says
from small_runs import Silent, records_in
from typer.testing import CliRunner

from agentsys.analysis.paper.paper_tables import TABLES, fill_table
from agentsys.analysis.tables.case_notes import write_provenance_notes
from agentsys.attacks.text_attacks import find_first_rounds
from agentsys.base.ledger import LEDGER_FILE, read_ledger
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli import app
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.reply_checks import READING_SENTENCES
from agentsys.records.case_reader import read_cases
from agentsys.runs.cell import Cell
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.redteam.encoded_attack import TEXT_CODES
from agentsys_plugins.rivals.datafilter.defense import KNOWN_FACT, KNOWN_ORDER

ONE = ["benchmark.suites=[slack]", "user_tasks=[0]"]
SWEEP = ["model=simulated", "defense=none,needy,prompt_sandwiching", *ONE]


class Needy:
    """A defense whose extra is not installed."""

    name = "needy"

    def ready(self) -> None:
        raise Unavailable("Defense 'needy' needs things: pip install things", needs="things")

    def pipeline(self, model: Any, suite: Any) -> Any:
        self.ready()


class Broken(Needy):
    """One that only finds out when its first case is built."""

    def ready(self) -> None:
        pass

    def pipeline(self, model: Any, suite: Any) -> Any:
        raise ConfigError("the hub cannot be reached")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    folder = tmp_path / "conf" / "defense"
    folder.mkdir(parents=True)
    (folder / "needy.yaml").write_text(f"_target_: {__name__}.Needy\n")
    (folder / "broken.yaml").write_text(f"_target_: {__name__}.Broken\n")
    return tmp_path / "conf"


def test_what_cannot_run_here_is_refused_in_one_line_before_the_first_case(
    tmp_path: Path, conf: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_session([*SWEEP, f"logdir={tmp_path / 'runs'}"], config_dirs=[conf])
    assert str(caught.value) == (
        "1 of 3 cells cannot run here (simulated / needy: Defense 'needy' needs things: pip install things). "
        "Mend it, or run the others now: --skip-unavailable."
    )


def test_the_others_run_with_skip_unavailable(tmp_path: Path, conf: Path) -> None:
    chosen = [*SWEEP, f"logdir={tmp_path / 'runs'}", "--config-dir", str(conf), "--skip-unavailable"]
    done = CliRunner().invoke(app, ["run", *chosen])
    assert done.exit_code == 0, done.output
    assert "2 cases in 2 cells" in done.output
    assert "Left out: simulated / needy. Defense 'needy' needs things" in done.output
    assert {r["status"] for r in (r["agentsys"] for r in records_in(tmp_path / "runs").values())} == {"ok"}
    assert len(records_in(tmp_path / "runs")) == 2


def test_a_dry_run_without_a_key_tells_of_the_extra_all_the_same(
    tmp_path: Path, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chosen = ["model=gpt-4o-mini", *SWEEP[1:], f"logdir={tmp_path / 'runs'}", "--config-dir", str(conf)]
    shown = CliRunner().invoke(app, ["run", *chosen, "--dry-run"]).output
    (row,) = [line for line in shown.splitlines() if " needy " in line and "n/a" in line]
    assert "needs things" in row and "n/a" in row
    assert "Cannot run here: gpt-4o-mini / needy. Defense 'needy' needs things" in shown
    assert "gpt-4o-mini / none, gpt-4o-mini / needy, gpt-4o-mini / prompt_sandwiching. Model" in shown


def test_an_error_of_one_cell_ends_that_cell_alone(tmp_path: Path, conf: Path) -> None:
    chosen = ["model=simulated", "defense=broken,none", "benchmark.suites=[slack]", "limit_per_suite=6"]
    session = prepare_session(
        [*chosen, "executor.workers=1", f"logdir={tmp_path / 'runs'}"], config_dirs=[conf]
    )
    outcome = session.execute(listener := Silent())
    assert outcome.fatal is None
    (given_up,) = outcome.ended_cells
    assert (given_up.labels, given_up.left) == (("simulated", "broken", "none"), 5)
    assert "the hub cannot be reached" in given_up.why
    assert [record.case.defense for record in listener.records] == ["broken", *["none"] * 6]


@pytest.mark.parametrize(
    ("answer", "says_why"),
    [
        (fails(401), r"bad_key.*check the key"),
        (fails(404), r"unknown_model.*model.model_id"),
        (fails(400), r"bad_request.*refuses a small request with a tool"),
        (fails(403), r"forbidden.*may not use it"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(answer: Answer, says_why: str, tmp_path: Path) -> None:
    with paid_server(lambda *_: answer) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        with pytest.raises(Unavailable, match=says_why):
            session.preflight()
    assert len(server.asked) == 1
    (entry,) = read_ledger(tmp_path / "runs" / ".agentsys" / LEDGER_FILE)
    assert (entry.role, entry.case) == ("preflight", "")


@pytest.mark.parametrize(
    "answer", [fails(500), (200, {}), (200, {"choices": []}), (200, {"code": 5, "msg": "no"})]
)
def test_a_server_that_fails_again_and_again_is_refused(answer: Answer, tmp_path: Path) -> None:
    with paid_server(lambda *_: answer) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        with pytest.raises(Unavailable, match="preflight=false"):
            session.preflight()


@pytest.mark.parametrize("taken", [True, False])
def test_a_model_that_refuses_its_own_thoughts_is_refused_before_the_first_case(
    taken: bool, tmp_path: Path
) -> None:
    first = calls("ready", '{"word": "yes"}')
    first[1]["choices"][0]["message"]["reasoning_content"] = "I am asked for a call."
    with paid_server(lambda n, _: first if n == 1 else says() if taken else fails(400)) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        if taken:
            assert session.preflight().preflight_warnings == ()
        else:
            with pytest.raises(Unavailable, match=r"refuses its thoughts as they are sent back.*HTTP 400"):
                session.preflight()
        assert [message["role"] for message in server.asked[1]["messages"]] == ["user", "assistant", "tool"]


def test_a_server_that_is_down_is_refused_and_the_other_model_runs(tmp_path: Path) -> None:
    confs = [paid_model(tmp_path, "http://127.0.0.1:9/v1")]
    chosen = ["model=paid,simulated", *ONE, f"logdir={tmp_path / 'runs'}"]
    session = prepare_session(chosen, config_dirs=confs)
    with pytest.raises(ConfigError, match=r"1 of 2 cells cannot run here .*is the server up"):
        session.preflight()
    looked = session.preflight(skip_unavailable=True)
    assert [job.case.model for job in looked.plan.open_jobs] == ["simulated"]
    assert looked.execute(Silent()).errors == 0


def test_a_server_that_makes_no_tool_call_is_told_and_one_that_is_busy_is_no_reason(tmp_path: Path) -> None:
    answers = [says("I am ready."), *[fails(503)] * 3, calls("ready", '{"word": "yes"}')]
    with paid_server(lambda n, _: answers[n - 1]) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        assert "without the tool call" in session.preflight().preflight_warnings[0]
        assert "the run goes on" in session.preflight().preflight_warnings[0]
        assert session.preflight().preflight_warnings == ()
        assert server.asked[0]["tools"][0]["function"]["name"] == "ready"


def test_data_load_while_the_question_is_under_way_and_a_bad_config_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = threading.Event(), Cell.warm_up

    def noted(cell: Cell) -> None:
        load(cell)
        loaded.set()

    def answer(_number: int, _body: dict[str, Any]) -> Answer:
        assert loaded.wait(60)
        return calls("ready", '{"word": "yes"}')

    monkeypatch.setattr(Cell, "warm_up", noted)
    with paid_server(answer) as server:
        chosen = ["model=paid", "benchmark.suites=[slack]", f"logdir={tmp_path / 'runs'}"]
        confs = [paid_model(tmp_path, server.url)]
        with pytest.raises(ConfigError, match="user_task_99"):
            prepare_session([*chosen, "user_tasks=[99]"], config_dirs=confs)
        session = prepare_session([*chosen, "user_tasks=[0]"], config_dirs=confs)
        assert not server.asked and not loaded.is_set()
        assert session.preflight().preflight_warnings == ()
        assert len(server.asked) == 1


READY_CALLS = {
    path.stem: json.loads(path.read_text("utf-8"))["expect"]["text"].replace("send_money", "ready")
    for path in sorted((Path(__file__).parents[1] / "corpus" / "wires" / "text_calls").glob("*.json"))
    if path.stem
    in ("deepseek_v4_dsml", "harmony_stripped", "olmo3", "react", "mistral_stripped", "json_args_first")
}
TEXT_CALL = '<tool_call>{"name": "ready", "arguments": {"word": "yes"}}</tool_call>'


def test_a_server_that_passes_calls_on_as_text_stops_the_run_before_the_first_case(tmp_path: Path) -> None:
    with paid_server(lambda *_: says(TEXT_CALL)) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        with pytest.raises(
            Unavailable,
            match=r"as text .*--enable-auto-tool-choice --tool-call-parser hermes; SGLang: .*qwen25",
        ):
            session.preflight()
    assert len(server.asked) == 1


@pytest.mark.parametrize("text", READY_CALLS.values(), ids=READY_CALLS)
def test_a_call_in_any_familys_form_stops_the_run_and_names_flags_of_servers(
    text: str, tmp_path: Path
) -> None:
    with paid_server(lambda *_: says(text)) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session(["model=paid", *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        with pytest.raises(
            Unavailable, match=r"--tool-call-parser .*llama.cpp: --jinja.*\+\+model.tools=text"
        ):
            session.preflight()


def answer_with_thoughts(block: str, answer: str) -> Callable[[int, dict[str, Any]], Answer]:
    """The question's call, and then one answer for ever, with thoughts before both."""
    ready = {"name": "ready", "arguments": '{"word": "yes"}'}
    call = {"id": "c1", "type": "function", "function": ready}

    def reply(number: int, body: dict[str, Any]) -> Answer:
        if [tool["function"]["name"] for tool in body.get("tools", ())] == ["ready"]:
            return says(block, [call])
        return says(block + answer)

    return reply


def run_paid(tmp_path: Path, *more: str) -> dict[str, Any]:
    """Run one case, and give its record."""
    chosen = ["model=paid", *ONE, f"logdir={tmp_path / 'runs'}", *more]
    session = prepare_session(chosen, config_dirs=[tmp_path / "conf"]).preflight()
    session.execute(Silent())
    (record,) = records_in(tmp_path / "runs").values()
    return record


@pytest.mark.parametrize("block", ["<think>Hm.</think>\n", "Hm.\n</think>\n", "[THINK]Hm.[/THINK]"])
def test_leading_thoughts_in_the_questions_answer_are_taken_off_all_answers_and_that_is_stored(
    block: str, tmp_path: Path
) -> None:
    with paid_server(answer_with_thoughts(block, "It is done.")) as server:
        paid_model(tmp_path, server.url)
        record = run_paid(tmp_path)
        again = run_paid(tmp_path, "preflight=false", "user_tasks=[0]", "epochs=1")
        assert again["agentsys"]["config_hash"] == record["agentsys"]["config_hash"]
    last = record["messages"][-1]["content"]
    assert [(part["type"], part["content"]) for part in last] == [
        ("thinking", "Hm."),
        ("text", "It is done."),
    ]
    assert any("strip_think: on for paid" in note for note in record["agentsys"]["notes"])
    (kept,) = (tmp_path / "runs" / ".agentsys" / "inferred").glob("*.inferred")
    assert json.loads(kept.read_text())["strip_think"] is True


def test_a_run_that_goes_on_without_the_question_reads_texts_as_the_run_before_it(tmp_path: Path) -> None:
    with paid_server(answer_with_thoughts("<think>Hm.</think>", "It is done.")) as server:
        paid_model(tmp_path, server.url)
        run_paid(tmp_path)
        more = ["model=paid", "benchmark.suites=[slack]", "user_tasks=[1]", f"logdir={tmp_path / 'runs'}"]
        prepare_session([*more, "preflight=false"], config_dirs=[tmp_path / "conf"]).execute(Silent())
    ends = [
        record["messages"][-1]["content"][-1]["content"] for record in records_in(tmp_path / "runs").values()
    ]
    assert ends == ["It is done."] * 2


@pytest.mark.parametrize("asked", ["++model.strip_think=false", "preflight=false"])
def test_thoughts_stay_where_a_setting_says_so_or_nobody_looked_and_are_counted(
    asked: str, tmp_path: Path
) -> None:
    with paid_server(answer_with_thoughts("<think>Hm.</think>", "It is done.")) as server:
        paid_model(tmp_path, server.url)
        record = run_paid(tmp_path, asked)
    assert record["messages"][-1]["content"][-1]["content"] == "<think>Hm.</think>It is done."
    odd = [call["odd"] for span in record["agentsys"]["spans"] for call in span["calls"]]
    assert odd == [{"thoughts_in_text": 1}]


class Crashing:
    """A model with a bug."""

    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, request: Any) -> Any:
        raise KeyError("choices")


def test_a_models_bug_is_told_and_left_to_the_cases_which_keep_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "conf/model").mkdir(parents=True)
    card = f"_target_: {__name__}.Crashing\nname: crashing\nprose_name: C\n"
    (tmp_path / "conf/model/crashing.yaml").write_text(card)
    chosen = ["model=crashing", *ONE, f"logdir={tmp_path / 'runs'}"]
    looked = prepare_session(chosen, config_dirs=[tmp_path / "conf"]).preflight()
    assert "its code broke (KeyError: 'choices'); the run goes on" in looked.preflight_warnings[0]
    outcome = looked.execute(Silent())
    assert (outcome.errors, len(outcome.tracebacks)) == (1, 1)
    (record,) = records_in(tmp_path / "runs").values()
    assert record["agentsys"]["error_kind"] == "model"
    assert "KeyError: 'choices'" in record["agentsys"]["traceback"]


def test_a_missing_key_is_what_the_run_would_need_and_the_price_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chosen = ["model=gpt-4o-mini", *ONE, f"logdir={tmp_path / 'runs'}", "--dry-run"]
    shown = CliRunner().invoke(app, ["run", *chosen]).output
    assert "OPENAI_API_KEY" in shown and "$0.0" in shown and "n/a" not in shown
    with pytest.raises(Unavailable, match="OPENAI_API_KEY"):
        prepare_session(chosen[:-1])


def test_a_role_that_needs_a_model_made_for_it_is_not_played_by_the_agents(tmp_path: Path) -> None:
    with paid_server(lambda *_: calls("ping", "{}")) as server:
        confs = [paid_model(tmp_path, server.url)]
        stacked = ["defense=firewall_sanitizer+melon", "defense.members=[datafilter,tool_filter]"]
        for chosen in (["defense=datafilter"], stacked):
            with pytest.raises(Unavailable, match=r"\+model\.roles\.datafilter=NAME"):
                prepare_session(
                    ["model=paid", *chosen, *ONE, f"logdir={tmp_path / 'runs'}"], config_dirs=confs
                )
    assert server.asked == []


@pytest.mark.parametrize(("keeps", "fits"), [(KNOWN_FACT, True), (f"{KNOWN_FACT} {KNOWN_ORDER}", False)])
def test_a_model_made_for_a_role_is_asked_what_the_defense_asks_it_and_no_tool_call(
    tmp_path: Path, keeps: str, fits: bool
) -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        return calls("ping", "{}") if body.get("tools") else says(keeps)

    with paid_server(answer) as server:
        confs = [paid_model(tmp_path, server.url)]
        chosen = ["model=paid", "+model.roles.datafilter=paid", "defense=none,datafilter", *ONE]
        session = prepare_session([*chosen, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)
        if fits:
            session.preflight()
        else:
            with pytest.raises(ConfigError, match="role datafilter: it kept the order of a known text"):
                session.preflight()
    assert [bool(body.get("tools")) for body in server.asked] == [True, False]


def reads(*codes: str) -> Any:
    """A server that calls the tool it is asked for, reads some codes, and does nothing else."""

    def answer(_: int, body: dict[str, Any]) -> Answer:
        if body.get("tools"):
            return calls("ready", '{"word": "yes"}') if len(body["tools"]) == 1 else says("Done.")
        coded = body["messages"][-1]["content"].rpartition("\n")[2]
        found = [
            said for code in codes for said in READING_SENTENCES if TEXT_CODES[code].encode(said) == coded
        ]
        return says(f"It says: {found[0].upper()}" if found else "I cannot tell.")

    return answer


def test_a_code_that_a_model_cannot_read_is_told_before_the_run_and_in_its_results(tmp_path: Path) -> None:
    few = [
        "model=paid",
        "attack=encoded",
        "attack.code=rot13,base64",
        "injection_tasks=[injection_task_1]",
        *ONE,
    ]
    with paid_server(reads("rot13")) as server:
        confs = [paid_model(tmp_path, server.url)]
        session = prepare_session([*few, f"logdir={tmp_path / 'runs'}"], config_dirs=confs).preflight()
        assert len(server.asked) == 1 + 2 * len(READING_SENTENCES)
        assert not any("attack" in str(body["messages"]).casefold() for body in server.asked)
        (line,) = session.preflight_warnings
        assert line.startswith(
            "Model 'paid': model read 0 of 3 sentences in base64, asked without the attack"
        )
        assert session.execute(Silent()).errors == 0
    cases = read_cases([tmp_path / "runs"]).cases
    told = {case.attack.partition("+")[0]: case.notes for case in cases}
    assert told == {
        "encoded-rot13": ("model read 3 of 3 sentences in rot13",),
        "encoded-base64": ("model read 0 of 3 sentences in base64",),
    }
    (note,) = [one for one in write_provenance_notes(cases) if "harmless" in one]
    assert "paid read 0 of 3 harmless sentences in base64" in note
    assert "encoded-base64 fails at there is not resistance" in note


SLACK = ["model=simulated", "benchmark.suites=[slack]", "attack=injection_round"]


def planned(tmp_path: Path, *overrides: str) -> Any:
    return prepare_session([*overrides, f"logdir={tmp_path / 'runs'}"]).plan


def test_what_does_not_apply_is_left_out_and_counted_once_per_pair(tmp_path: Path) -> None:
    suite = AgentDojo("v1.2.2").suite("slack")
    users = {n for n, task in suite.user_tasks.items() if 2 in find_first_rounds(suite, task).values()}
    found = planned(tmp_path, *SLACK, "attack.round=2", "defense=none,agentsys", "epochs=2")
    assert {job.case.user_task_id for job in found.jobs} == users
    assert len(found.jobs) == len(users) * 5 * 2 * 2
    (left_out,) = found.skipped
    pairs = (21 - len(users)) * 5
    assert (left_out.pairs, left_out.cases, left_out.empty) == (pairs, pairs * 4, False)
    assert left_out.summary_line == (
        f"{pairs * 4} cases left out: injection_round+round=2 has nowhere to write in {pairs} pairs."
    )


def test_a_suite_is_asked_for_its_tasks_a_few_times_and_not_for_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []
    sort_out = task_suite.get_version_compatible_items
    monkeypatch.setattr(
        task_suite, "get_version_compatible_items", lambda *of: found.append(of) or sort_out(*of)
    )
    plan = planned(
        tmp_path,
        "model=simulated",
        "benchmark.suites=[slack]",
        "attack=important_instructions",
        "limit_per_suite=60",
    )
    assert len(plan.jobs) == 60
    assert 0 < len(found) < 20


def test_an_empty_cell_among_others_is_said_and_a_run_without_a_case_is_refused(tmp_path: Path) -> None:
    one = [*SLACK, "user_tasks=[0]"]
    found = planned(tmp_path, *one, "attack.round=1,2")
    assert [left_out.empty for left_out in found.skipped] == [True]
    assert "it has no case in this run" in found.skipped[0].summary_line
    with pytest.raises(ConfigError, match=r"No case to run: attack injection_round\+round=2 .* 5 pairs"):
        planned(tmp_path, *one, "attack.round=2")


def test_run_announces_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    entry = {"suite": "slack", "injection_task": "injection_task_1", "text": "Do it now, dear model, please."}
    file.write_text(json.dumps([entry]))
    overrides = ["model=simulated", "benchmark.suites=[slack]", "user_tasks=[0]", "attack=cached"]
    outcome = CliRunner().invoke(
        app, ["run", *overrides, f"attack.file={file}", f"logdir={tmp_path / 'runs'}", "executor.workers=1"]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "4 cases left out: cached-mine has no text for 4 pairs." in outcome.output
    assert "1 case in 1 cell;" in outcome.output


def rounds_off(tmp_path: Path, suites: str) -> tuple[int, list[tuple[Any, ...]]]:
    """Runs every round on the plain simulated agent; the cases, and those that were met in another round."""
    session = prepare_session(
        [
            "model=simulated",
            f"benchmark.suites=[{suites}]",
            "attack=injection_round",
            "attack.round=1,2,3,4",
            f"logdir={tmp_path / 'runs'}",
            "executor.workers=1",
        ]
    )
    session.execute(Silent())
    cases = read_cases([tmp_path / "runs"]).cases
    wrong = [
        (case.suite, case.user_task_id, case.attack, case.raw_round, case.injection_round)
        for case in cases
        if not case.attack.endswith(f"round={case.raw_round}") or case.raw_round != case.injection_round
    ]
    return len(cases), wrong


def test_the_first_injected_result_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    count, wrong = rounds_off(tmp_path, "slack")
    assert count > 100 and wrong == []
    # The same runs fill Table 1, each round in its column.
    cases = read_cases([tmp_path / "runs"]).cases
    rows = [row for row in fill_table(TABLES[1], cases).rows if row.line is not None]
    shown = {
        (row.band.labels[0], place + 1): cell.ours.n
        for row in rows
        for place, cell in enumerate(row.cells)
        if cell.ours is not None
    }
    in_cases = {
        (str(length), round_): sum(
            (c.trajectory_length, c.injection_round) == (length, round_) for c in cases
        )
        for length in (2, 3, 4)
        for round_ in (1, 2, 3, 4)
    }
    assert shown == {place: n for place, n in in_cases.items() if n}
    assert len(shown) > 3


@pytest.mark.slow
def test_the_same_holds_on_the_larger_suites(tmp_path: Path) -> None:
    assert rounds_off(tmp_path, "travel,workspace") == (761, [])
