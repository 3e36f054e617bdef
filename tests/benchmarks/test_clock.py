"""A case's tools read a clock of their own, in their own thread, and nobody else's."""

from __future__ import annotations

import datetime
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionsRuntime

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.repeatable_tools import CaseClock, use_case_clock
from agentsys.errors import ConfigError

START = datetime.datetime(2025, 1, 1, 12, 0, 0, 500_000)
MAIL = {"recipients": ["a@b.c"], "subject": "s", "body": "b"}


@cache
def workspace() -> Any:
    return AgentDojo("v1.2.2").suite("workspace")


def sent() -> datetime.datetime:
    """The stamp of a mail that is sent now, on a fresh environment."""
    suite = workspace()
    runtime, environment = FunctionsRuntime(suite.tools), suite.load_and_inject_default_environment({})
    mail, error = runtime.run_function(environment, "send_email", MAIL)
    assert error is None
    stamp = mail.timestamp
    assert type(stamp) is datetime.datetime, "of the real class, as every other date of the environment"
    pickle.dumps(environment)
    return stamp


def test_tools_read_the_cases_clock_and_later_is_later() -> None:
    with use_case_clock(START):
        assert sent() == START
        assert sent() == START + datetime.timedelta(seconds=1)
    with use_case_clock(START):
        assert sent() == START, "a new case, a new clock"


def test_threads_side_by_side_read_their_own_clocks() -> None:
    workspace()
    together = threading.Barrier(4)

    def case(start: datetime.datetime | None) -> list[datetime.datetime]:
        with use_case_clock(start):
            together.wait(100)
            return [sent() for _ in range(5)]

    days = [START + datetime.timedelta(days=day) for day in range(3)]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(Context().run, case, start) for start in (*days, None)]
        *fixed, real = [future.result() for future in futures]
    assert fixed == [[day + datetime.timedelta(seconds=n) for n in range(5)] for day in days]
    assert min(real) > datetime.datetime(2026, 1, 1)


def tools_of(source: str) -> ModuleType:
    module = ModuleType("suite_of_my_own")
    module.__dict__["__name__"] = "suite_of_my_own"
    sys.modules["suite_of_my_own"] = module
    exec(compile(source, "suite_of_my_own.py", "exec"), vars(module))
    return module


def test_every_way_to_import_datetime_reads_the_clock() -> None:
    from dataclasses import dataclass

    from agentdojo.functions_runtime import TaskEnvironment, make_function

    module = tools_of(
        """
import datetime
import datetime as dt
from datetime import date, datetime as moment, timedelta

def look() -> list:
    "Look at the time."
    return [datetime.datetime.now(), dt.date.today(), date.today(), moment.now(), moment.today(),
            moment.utcnow(), moment.now(datetime.timezone.utc), moment(2024, 5, 1) + timedelta(1),
            isinstance(moment.now(), moment), isinstance(date(2024, 1, 1), dt.date),
            moment.fromisoformat("2024-05-01"), datetime.datetime.combine(date.min, datetime.time(1)),
            issubclass(moment, date)]
"""
    )

    @dataclass
    class Suite:
        tools: list[Any]
        environment_type: Any = TaskEnvironment

    from agentsys.benchmarks.repeatable_tools import install_case_clocks

    suite: Any = Suite([make_function(module.look)])
    install_case_clocks(suite)
    install_case_clocks(suite)  # once more changes nothing
    with use_case_clock(START):
        seen = module.look()
    assert [value.year for value in seen[:7]] == [2025] * 7
    assert type(seen[1]) is datetime.date
    assert seen[7:] == [
        datetime.datetime(2024, 5, 2),
        True,
        True,
        datetime.datetime(2024, 5, 1),
        datetime.datetime(1, 1, 1, 1),
        True,
    ]
    assert module.look()[0].year >= 2026


@pytest.mark.parametrize("clock", ["noon", "2024-05-15T09:00:00+02:00", ""])
def test_what_is_no_time_is_one_line(clock: str) -> None:
    with pytest.raises(ConfigError, match=r"benchmark\.clock=.*give 'real', or a date and time"):
        AgentDojo("v1.2.2", clock=clock)


def test_the_clock_can_be_chosen() -> None:
    assert AgentDojo("v1.2.2", clock="real").clock is None
    assert AgentDojo("v1.2.2", clock="2024-05-15 09:00").clock == datetime.datetime(2024, 5, 15, 9)
    assert CaseClock(START).now(datetime.UTC).tzinfo is datetime.UTC
