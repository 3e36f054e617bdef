"""The ledger: lines of many writers, killed ones among them, and a reader that takes what is whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.base.ledger import LEDGER_FILE, Ledger, LedgerEntry, LedgerTotals, read_ledger, sum_ledgers

ONE = LedgerEntry(1.0, "m__none/slack/user_task_0/none/none.json", "m", "agent", 1000, 500, cost_usd=2.0)
WRITER = """
import sys
from pathlib import Path
from agentsys.base.ledger import Ledger, LedgerEntry
ledger = Ledger(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    ledger.add(LedgerEntry(0.0, sys.argv[3] * 50, "m", "agent", number, 1))
"""


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / LEDGER_FILE)
    failed = LedgerEntry(2.0, "", "m", "preflight", error="bad_key")
    ledger.add(ONE)
    ledger.add(failed)
    assert list(read_ledger(tmp_path / LEDGER_FILE)) == [ONE, failed]
    Ledger(tmp_path / LEDGER_FILE).add(ONE)
    assert list(read_ledger(tmp_path / LEDGER_FILE)) == [ONE, failed, ONE]


def test_a_torn_line_is_passed_over_and_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / LEDGER_FILE
    Ledger(path).add(ONE)
    with path.open("ab") as file:
        file.write(b'\n{"at": 3.0, "case": "m__no\n')
        file.write(json.dumps({**vars(ONE), "cost_usd": 10**400}).encode() + b'\n{"at": 3.0')
    Ledger(path).add(ONE)
    assert list(read_ledger(path)) == [ONE, ONE]


def test_a_line_torn_while_others_have_the_file_open_takes_none_of_theirs_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, other, write = Ledger(tmp_path / LEDGER_FILE), Ledger(tmp_path / LEDGER_FILE), os.write
    killed.add(ONE)
    other.add(ONE)
    with monkeypatch.context() as torn:
        torn.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        killed.add(ONE)
    other.add(ONE)
    assert list(read_ledger(tmp_path / LEDGER_FILE)) == [ONE, ONE, ONE]


def test_a_thread_does_not_wait_while_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, write = Ledger(tmp_path / LEDGER_FILE), os.write
    ledger.add(ONE)
    begun, ended = threading.Event(), threading.Event()

    def slow(file: int, data: bytes) -> int:
        if threading.current_thread().name == "slow":
            begun.set()
            ended.wait(60)
        return write(file, data)

    monkeypatch.setattr(os, "write", slow)
    threads = [threading.Thread(target=ledger.add, args=(ONE,), name=name) for name in ("slow", "quick")]
    threads[0].start()
    begun.wait(60)
    threads[1].start()
    threads[1].join(60)
    assert len(list(read_ledger(tmp_path / LEDGER_FILE))) == 2
    ended.set()
    threads[0].join(60)
    assert len(list(read_ledger(tmp_path / LEDGER_FILE))) == 3


def test_processes_that_write_at_once_and_are_killed_lose_only_what_they_had_not_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / LEDGER_FILE
    command = [sys.executable, "-c", WRITER, str(path)]
    whole = [subprocess.Popen([*command, "300", name]) for name in "abc"]
    killed = subprocess.Popen([*command, "1000000", "k"])
    while not path.exists() or b"kkkk" not in path.read_bytes():
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert [process.wait() for process in whole] == [0, 0, 0]
    entries = list(read_ledger(path))
    assert path.read_bytes().count(b"\n") - len(entries) in (
        0,
        1,
    )  # a kill may tear the line that was being written
    for name in "abc":
        assert [e.prompt for e in entries if e.case == name * 50] == list(range(300))
    numbers = [e.prompt for e in entries if e.case == "k" * 50]
    assert numbers == list(range(len(numbers)))


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b'{"at": 1}', b"[]", b"null", b"\xff"])))
@settings(max_examples=100, deadline=None)
def test_no_content_is_an_error(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("ledger") / LEDGER_FILE
    path.write_bytes(b"\n".join(lines))
    list(read_ledger(path))


def test_counts_that_are_none_are_no_entry(tmp_path: Path) -> None:
    path = tmp_path / LEDGER_FILE
    base = {"at": 1.0, "case": "", "model": "m", "role": "agent"}
    odd = [base | {"prompt": "7"}, base | {"cost_usd": float("nan")}, base | {"mood": "fine"}, {"at": 1.0}]
    path.write_text("\n".join(json.dumps(line) for line in odd))
    assert list(read_ledger(path)) == []


def test_a_pipeline_folder_counts_its_own_cases_and_a_folder_of_log_folders_all(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".agentsys").mkdir(parents=True)
        ledger = Ledger(tmp_path / name / ".agentsys" / LEDGER_FILE)
        ledger.add(ONE)
        ledger.add(LedgerEntry(1.0, "other/slack/x.json", "m", "agent", 5, 5, cost_usd=None, error="timeout"))
    (tmp_path / "one" / "m__none").mkdir()
    assert sum_ledgers([tmp_path / "one" / "m__none"]) == LedgerTotals(1, 0, 1500, 2.0)
    assert sum_ledgers([tmp_path]) == LedgerTotals(4, 2, 3020, 4.0, 0.0, 2)
    assert sum_ledgers([tmp_path / "one", tmp_path / "one"]).requests == 2
    assert sum_ledgers([tmp_path / "one"]).summary_line == (
        "Sent in all, by the ledger: 2 requests, 1,510 tokens, $2.00 (1 without a price): 1 with an answer ($2.00)"
        " and 1 without ($0.00). This sum counts every request, also of cases that were run again or dropped;"
        " replies from the cache are not in it."
    )
    assert "tokens, cost unknown. This" in LedgerTotals(3, 0, 99, unpriced=3).summary_line
    paid = LedgerTotals(9, 2, 99, cost_usd=3.0, failed_usd=0.75).summary_line
    assert "9 requests" in paid and "$3.00: 7 with an answer ($2.25) and 2 without ($0.75)." in paid
    assert sum_ledgers([tmp_path / "nothing"]).summary_line == ""
