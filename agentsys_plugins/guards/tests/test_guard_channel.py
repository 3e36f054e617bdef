"""No answer is taken for another question's, whatever else a guard writes, and when."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_guards import build_wheel

from agentsys_plugins.guards.guard_confinement import find_confinement
from agentsys_plugins.guards.guard_process import GuardProcess, judge_texts
from agentsys_plugins.guards.guard_spec import GuardSpec, install_guard, read_guard_spec
from agentsys_plugins.guards.guard_worker import NoVerdict

UNCONFINED = find_confinement() is None
MISBEHAVING = """
import json, os, sys, time

def say(*lines):
    sys.stdout.write("".join(f"{line}\\n" for line in lines))
    sys.stdout.flush()

before = None
say("loading rules ...", '{"bad": true}', '{"id": 3, "bad": true}')
for line in sys.stdin:
    asked = json.loads(line)
    do, _, truth = asked["text"].partition(" ")
    answer = {"id": asked["id"], "bad": truth == "evil"}
    wrong = {**answer, "bad": not answer["bad"]}
    right, lie = json.dumps(answer), json.dumps(wrong)
    if do == "banner": say("a line", right)
    elif do == "log": say(json.dumps({"level": "info", "bad": wrong["bad"]}), right, "behind")
    elif do == "half": sys.stdout.write('{"bad": tr'); say("", right)
    elif do == "twice": say(right, right)
    elif do == "contradict": say(lie, right)
    elif do == "stale" and before: say(json.dumps({**wrong, "id": before}), right)
    elif do == "later": say(right); time.sleep(0.05); say(lie)
    elif do == "much_later" and os.fork() == 0: time.sleep(0.3); say(lie); os._exit(0)
    elif do == "other_id": say(json.dumps({**wrong, "id": "0" * 16}))
    elif do == "no_id": say(json.dumps({"bad": wrong["bad"]}))
    elif do == "silent": pass
    elif do == "noise": say("[" * 5000, "\\x00", "NaN", '{"id": [1]}', "9" * 5000, right)
    elif do == "nothing": say("nonsense")
    elif do == "crash": os._exit(3)
    elif do == "crash_after": say(right); os._exit(3)
    elif do == "early": say(right)
    else: say(right)
    before = asked["id"]
"""
HARMLESS = ("good", "banner", "log", "half", "noise")
"""What still has one answer with its number."""
BEHAVIOURS = (
    *HARMLESS,
    *(
        "twice",
        "contradict",
        "stale",
        "later",
        "other_id",
        "no_id",
        "silent",
        "nothing",
        "crash",
        "crash_after",
    ),
)


def start_misbehaving(folder: Path, **options: Any) -> GuardProcess:
    (folder / "odd.py").write_text(MISBEHAVING)
    shared: dict[str, Any] = {"fresh": "run", "timeout_s": 0.5, "unconfined": UNCONFINED, "flag": "bad"}
    command = (sys.executable, "-S", "odd.py")
    return GuardProcess(
        GuardSpec(kind="command", command=command, yaml_folder=str(folder), **{**shared, **options})
    )


def ask_all(process: GuardProcess, done: Sequence[tuple[str, bool]]) -> list[bool | None]:
    """The verdicts of texts, by their places; None: it gave none."""
    process._in_a_row = -len(done)  # it is not to be given up here
    texts = {str(n): f"{do} {'evil' if evil else 'good'}" for n, (do, evil) in enumerate(done)}
    found = judge_texts(process, texts)
    return [None if one is None else one.flag for one in found.values()]


@pytest.fixture(scope="module")
def misbehaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardProcess]:
    process = start_misbehaving(tmp_path_factory.mktemp("guard"))
    yield process
    process.close()


@settings(max_examples=8)
@given(st.lists(st.tuples(st.sampled_from(BEHAVIOURS), st.booleans()), min_size=1, max_size=8))
def test_no_verdict_of_a_guard_that_misbehaves_belongs_to_another_text(
    misbehaving: GuardProcess, done: list[tuple[str, bool]]
) -> None:
    for (do, evil), verdict in zip(done, ask_all(misbehaving, done), strict=True):
        assert verdict in (evil, None), do


def test_an_answer_that_is_contradicted_several_texts_later_fails_its_own_text_alone(tmp_path: Path) -> None:
    process = start_misbehaving(tmp_path, timeout_s=20)
    found = ask_all(process, [("good", True), ("much_later", True), *[("good", False)] * 300])
    process.close()
    assert found == [True, None, *[False] * 300]
    assert process.failures == {"doubled": 1}


@pytest.mark.slow
def test_of_many_texts_none_has_the_verdict_of_another(tmp_path: Path) -> None:
    count, draw = int(os.environ.get("GUARD_TEXTS", "20000")), random.Random(7)
    often = [*HARMLESS * 400, *BEHAVIOURS]
    done = [(draw.choice(often), draw.random() < 0.5) for _ in range(count)]
    process = start_misbehaving(tmp_path, timeout_s=2.0)
    found = ask_all(process, done)
    process.close()
    assert all(verdict in (evil, None) for (_, evil), verdict in zip(done, found, strict=True))
    assert sum(verdict is not None for verdict in found) > 0.95 * count


@pytest.mark.parametrize(
    ("do", "kind"),
    [
        *(("twice", "doubled"), ("contradict", "doubled"), ("other_id", "hang"), ("no_id", "hang")),
        *(("silent", "hang"), ("nothing", "hang"), ("crash", "crash")),
    ],
)
def test_an_answer_that_is_missing_or_doubled_fails_that_text_alone(
    tmp_path: Path, do: str, kind: str
) -> None:
    process = start_misbehaving(tmp_path, timeout_s=2.0)
    assert process.ask(text="good evil").flag
    with pytest.raises(NoVerdict) as caught:
        process.ask(text=f"{do} evil")
    assert caught.value.kind == kind
    assert process.ask(text="good evil").flag
    assert not process.ask(text="good good").flag
    assert process.failures == {kind: 1}
    process.close()


def test_a_process_that_ended_after_its_answer_fails_no_further_text(tmp_path: Path) -> None:
    process = start_misbehaving(tmp_path, timeout_s=20)
    for _ in range(3):
        assert process.ask(text="crash_after evil").flag
        assert process._process is not None
        process._process.wait(10)
    assert process.ask(text="good evil").flag
    assert not process.failures
    process.close()


def test_what_is_no_answer_is_kept_up_to_two_kilobytes_and_told(tmp_path: Path) -> None:
    process = start_misbehaving(tmp_path, timeout_s=20)
    for _ in range(300):
        assert process.ask(text="banner evil").flag
    process.close()
    (act,) = process.acts
    assert act.startswith('wrote what is no answer: loading rules ...\n{"bad": true}')
    assert 1900 < len(act) < 2100


ANYTHING = """
import json, sys
say = sys.argv[1]
if say != "slow": print("loading rules ...")
for line in sys.stdin:
    bad = "evil" in json.loads(line)["text"]
    print(json.dumps({"bad": bad}))
    if say == "twice": print(json.dumps({"bad": bad}))
    if say == "log": print(json.dumps({"level": "info"}))
    if say == "stay":
        sys.stdout.flush()
        import time; time.sleep(60)
"""


@pytest.mark.parametrize(
    ("say", "kind"), [("banner", None), ("log", None), ("twice", "doubled"), ("stay", "hang")]
)
def test_a_command_that_gives_no_numbers_back_is_started_anew_for_each_text(
    tmp_path: Path, say: str, kind: str | None
) -> None:
    (tmp_path / "plain.py").write_text(ANYTHING)
    process = GuardProcess(
        GuardSpec(
            kind="command",
            command=("python3", "plain.py", say),
            flag="bad",
            yaml_folder=str(tmp_path),
            unconfined=UNCONFINED,
            timeout_s=3 if kind == "hang" else 60,
        )
    )
    for text in ("evil 1", "good 2", "evil 3")[: 3 if kind is None else 1]:
        if kind is None:
            assert process.ask(text=text).flag is ("evil" in text)
            assert not is_running(process)
        else:
            with pytest.raises(NoVerdict) as caught:
                process.ask(text=text)
            assert caught.value.kind == kind
    process.close()
    assert process.acts[0].startswith("wrote what is no answer: loading rules ...")


EXTREME = """
import json, sys
asked = json.loads(sys.stdin.readline())
print('{"id": "%s", "score": 0.9, "clean": "x", %s}' % (asked["id"], asked["text"]))
"""


@pytest.mark.parametrize(
    "said",
    [f'"score": {"9" * 400}', '"score": -1e999', '"score": NaN', '"clean": "\\ud800"', '"part": [0, 1e300]'],
)
def test_an_answer_that_is_no_number_or_no_text_is_no_verdict(tmp_path: Path, said: str) -> None:
    process = start_misbehaving(tmp_path, fresh=None, timeout_s=20, flag=None, score="score", clean="clean")
    process._where["partial"] = "part" if "part" in said else None
    (tmp_path / "odd.py").write_text(EXTREME)
    with pytest.raises(NoVerdict) as caught:
        process.ask(text=said)
    assert caught.value.kind == "nonsense"
    process.close()


def is_running(process: GuardProcess) -> bool:
    return process._process is not None


WRITER = """
import json, os, sys, threading, time

def scan(text):
    do, _, truth = text.partition(" ")
    for descriptor in range(3, 12):
        try:
            if do == "write": os.write(descriptor, b'{"flag": true, "score": null, "clean": null, "ms": 0}\\n')
            if do == "half": os.write(descriptor, b'{"flag": tr')
            if do == "close": os.close(descriptor)
        except OSError:
            pass
    if do == "forge":
        frame = sys._getframe()
        while "asked" not in frame.f_locals: frame = frame.f_back
        answer = {"id": frame.f_locals["asked"]["id"], "flag": False, **json.loads(truth)}
        os.write(frame.f_locals["replies"].fileno(), json.dumps(answer).encode() + b"\\n")
        time.sleep(0.2)
    if do == "read": sys.stdin.readline(); os.read(0, 100)
    if do == "fork" and os.fork() == 0: return True
    if do == "thread":
        def later():
            time.sleep(0.05)
            for descriptor in range(3, 12):
                try: os.write(descriptor, b'{"flag": true}\\n')
                except OSError: pass
        threading.Thread(target=later, daemon=True).start()
    return truth == "evil"
"""


def test_a_packaged_guard_that_writes_closes_or_reads_our_descriptors_answers_for_no_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    spec = read_guard_spec(
        "writer", {"package": "writing-guard==1.0", "call": "writing_guard:scan", "flag": "."}
    ).model_copy(update={"unconfined": UNCONFINED, "timeout_s": 2.0})
    install_guard(spec, build_wheel(tmp_path / "wheels", WRITER, "1.0", *["writing_guard"] * 2))
    process = GuardProcess(spec)
    for do in ("write", "half", "read", "fork", "thread", "close", "write"):
        with contextlib.suppress(NoVerdict):
            assert process.ask(text=f"{do} evil").flag, do
        for truth in ("good", "evil", "good"):
            assert process.ask(text=f"plain {truth}").flag is (truth == "evil"), do
    for forged in ('{"read": 5}', '{"number": "x"}', '{"error": [1]}', '{"score": 1e999}', '{"flag": "yes"}'):
        with pytest.raises(NoVerdict, match=r"nonsense|doubled"):
            process.ask(text=f"forge {forged}")
        assert process.ask(text="plain evil").flag, forged
    process.close()
    assert set(process.failures) <= {"crash", "hang", "nonsense", "doubled"}
    assert json.dumps(process.acts).count("wrote what is no answer") >= 1
