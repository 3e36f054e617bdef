"""How long `agentsys view` takes with many cases: until the first and the last tables, and for a new case.

Usage: python perf/live_view.py [--records N] [--traces FOLDER] [--browser]

A folder of published AgentDojo runs is copied under new pipeline names until there are N records, by
default 10,000 (as in perf/loading.py). A fresh `agentsys view` is asked as its page asks it. Beside it
stands the bare work in a fresh process: every record read and measured once, imports included. The ratios
are of one run on one machine, whatever else it does. Seconds from the start of each process:

  bare          read_cases, report, page_numbers and numbers_page
  listening     the server says its address
  page          the page itself has come, without cases
  first tables  the first numbers, of the cases read so far
  list          every case has been told of
  tables        the numbers of all cases
  again         the page with its list and tables is asked for once more (seconds it takes)
  new case      a record is written -> its row is told (seconds between the two)

With --browser, Chromium's first paint of that page as well, in seconds after it was asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loading import many_runs

WANTED = {"first tables": 0.7, "tables": 1.5}
"""Times the bare work, at most."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def bare(root: Path) -> None:
    """What has to be done, whoever shows it."""
    from agentsys.analysis.html_report.build import page_numbers
    from agentsys.analysis.html_report.page import numbers_page
    from agentsys.analysis.tables.report import report
    from agentsys.records.reading import read_cases

    reading = read_cases([root])
    numbers_page(page_numbers(reading, report(reading)))


@contextmanager
def server(root: Path) -> Iterator[str]:
    """Yield the page's address."""
    command = [sys.executable, "-m", "agentsys", "view", str(root), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "400"}
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().partition("open ")[2].split()[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def asked(address: str) -> bytes:
    with _OPENER.open(address, timeout=300) as answer:
        return bytes(answer.read())


def news(address: str, since: int, numbers: int) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(asked(f"{address}changes?since={since}&numbers={numbers}"))
    return told


def followed(root: Path, records: int, *, in_browser: bool) -> dict[str, float]:
    """Step -> seconds, in the order of the steps."""
    started = time.monotonic()
    took: dict[str, float] = {}

    def done(step: str) -> None:
        took.setdefault(step, time.monotonic() - started)

    with server(root) as address:
        done("listening")
        asked(address)
        done("page")
        version = numbers = cases = 0
        while "tables" not in took:
            told = news(address, version, numbers)
            cases += len(told["rows"])
            if told["numbers"] != numbers:
                asked(f"{address}numbers")
                done("first tables" if told["reading"] or cases < records else "tables")
            version, numbers = told["version"], told["numbers"]
            if cases == records:
                done("list")
        asking = time.monotonic()
        asked(address)
        took["again"] = time.monotonic() - asking
        path = next(root.rglob("injection_task_0.json"))
        writing = time.monotonic()
        path.with_name("injection_task_99.json").write_text(
            path.read_text().replace('"injection_task_0"', '"injection_task_99"')
        )
        while not news(address, version, numbers)["rows"]:
            pass
        took["new case"] = time.monotonic() - writing
        if in_browser:
            took["first paint"] = first_paint(address)
    return took


def first_paint(address: str) -> float:
    """Seconds from the question for the page to the first thing painted."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from browser import browser

    with browser() as window:
        window.open(address)
        script = "return performance.getEntriesByName('first-contentful-paint').length > 0"
        window.wait_for(script, seconds=120)
        paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
        return float(window.run(paint)) / 1000


def report(took: dict[str, float], bare_took: float, records: int) -> None:
    print(f"{records} records; seconds, and times the bare work")
    print(f"{'bare':14}{bare_took:8.1f}")
    for step, seconds in took.items():
        print(f"{step:14}{seconds:8.1f}{seconds / bare_took:8.2f} x")
    for step, wanted in WANTED.items():
        ratio = took[step] / bare_took
        verdict = "yes" if ratio <= wanted else "NO"
        print(f"{step}: {ratio:.2f} times the bare work (at most {wanted} wanted: {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--traces", type=Path, help="a folder of AgentDojo's published runs")
    parser.add_argument("--browser", action="store_true", help="measure Chromium's first paint as well")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare(options.bare)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = many_runs(Path(folder), options.traces, options.records)
        started = time.monotonic()
        subprocess.run([sys.executable, __file__, "--bare", str(root)], check=True)
        bare_took = time.monotonic() - started
        report(followed(root, options.records, in_browser=options.browser), bare_took, options.records)


if __name__ == "__main__":
    main()
