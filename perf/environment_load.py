"""How much faster environments load than AgentDojo loads them. Prints one line per suite and a ratio.

Usage: python perf/environment_load.py [--loads 30] [--version v1.2.2]

Three columns, CPU milliseconds per load (median): AgentDojo's own; ours with injections never
seen before (the price of a new case); ours with injections seen before (the same attack against
the next defense or model). Every distinct load is also compared with AgentDojo's result.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from agentdojo.task_suite.load_suites import get_suite

from agentsys.attacks.registered import RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import NotInjectable, Victim


def timed(load: Callable[[dict[str, str]], Any], injections: dict[str, str]) -> tuple[float, Any]:
    start = time.process_time()
    environment = load(injections)
    return (time.process_time() - start) * 1000, environment


def distinct_injections(suite: Any, loads: int) -> list[dict[str, str]]:
    """Real texts (important_instructions), made distinct by a number in each."""
    attack, found = RegisteredAttack("important_instructions"), []
    pairs = [(u, i) for u in suite.user_tasks.values() for i in suite.injection_tasks.values()]
    for number, (user_task, injection_task) in enumerate(pairs * loads):
        victim = Victim(f"Model {number}", "Emma Johnson")
        try:
            found.append(dict(attack.injections(suite, user_task, injection_task, victim)))
        except NotInjectable:
            continue
        if len(found) == loads:
            break
    return found


def measure(name: str, version: str, loads: int) -> float:
    suite, package = AgentDojo(version).suite(name), get_suite(version, name)
    stock, new, seen = [], [], []
    package.load_and_inject_default_environment({})  # warm its file cache
    for injections in distinct_injections(suite, loads):
        took_stock, expected = timed(package.load_and_inject_default_environment, injections)
        took_new, environment = timed(suite.load_and_inject_default_environment, injections)
        took_seen, again = timed(suite.load_and_inject_default_environment, injections)
        assert environment == again == expected
        stock.append(took_stock)
        new.append(took_new)
        seen.append(took_seen)
    a, b, c = (statistics.median(times) for times in (stock, new, seen))
    print(f"{name:10} {a:9.2f} {b:9.2f} {c:9.2f}   {a / b:6.1f}x new {a / c:8.1f}x seen")
    return a / b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=30)
    parser.add_argument("--version", default="v1.2.2")
    options = parser.parse_args()
    print(f"{'suite':10} {'agentdojo':>9} {'new':>9} {'seen':>9}   CPU ms per load")
    names = AgentDojo(options.version).suite_names()
    ratios = {name: measure(name, options.version, options.loads) for name in names}
    if "workspace" in ratios:
        enough = "yes" if ratios["workspace"] >= 5 else "NO"
        print(f"ratio, Workspace, distinct injections: {ratios['workspace']:.1f} (5 wanted: {enough})")


if __name__ == "__main__":
    main()
