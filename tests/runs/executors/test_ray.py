"""Cases on the nodes of a Ray cluster: two nodes of this machine. Skipped where Ray is not installed."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent, errors_in, records_in
from worker_model import asked, own_model

from agentsys.errors import Unavailable
from agentsys.runs.executors.ray_nodes import RayHand, RayStaff
from agentsys.runs.executors.staff import Gone
from agentsys.runs.session import prepare

INSTALLED = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="the extra `distributed` (ray) is not installed")
RAY = ["executor=ray", "executor.processes=2", "executor.workers=6"]


@pytest.mark.skipif(INSTALLED, reason="ray is installed")
def test_without_ray_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(
        Unavailable, match=r"executor=ray needs ray.*pip install 'agentsys-bench\[distributed\]'"
    ):
        prepare(["model=simulated", *RAY, f"logdir={tmp_path}"])


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on loopback, joined by this process."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@needs_ray
@pytest.mark.slow
def test_two_nodes_leave_the_records_of_threads(cluster: Any, tmp_path: Path) -> None:
    import ray

    plan = ["model=simulated", "defense=none,agentsys", "attack=none,direct", "limit=2"]
    outcome = prepare([*plan, *RAY, f"logdir={tmp_path / 'ray'}"]).execute(Silent())
    assert (outcome.errors, outcome.fatal) == (0, None)
    prepare([*plan, f"logdir={tmp_path / 'threads'}"]).execute(Silent())
    assert records_in(tmp_path / "ray") == records_in(tmp_path / "threads")
    assert (
        ray.is_initialized() and len([n for n in ray.nodes() if n["Alive"]]) == 2
    )  # a joined cluster stays up


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[Gone]:
    """Workers that ended before the run did."""
    seen, how = list[Gone](), RayStaff._gone

    def noted(self: RayStaff, hand: RayHand, error: Exception) -> Gone:
        seen.append(how(self, hand, error))
        return seen[-1]

    monkeypatch.setattr(RayStaff, "_gone", noted)
    return seen


@needs_ray
@pytest.mark.slow
def test_a_case_that_ends_two_workers_is_an_error(cluster: Any, tmp_path: Path, gone: list[Gone]) -> None:
    conf, plugins = own_model(tmp_path, deadly="Post the summary of the article")
    plan = ["model=own", "attack=none", "benchmark.suites=[slack]", f"logdir={tmp_path / 'runs'}"]
    session = prepare([*plan, *RAY], config_dirs=[conf], plugin_paths=[plugins])
    outcome = session.execute(Silent())
    assert (outcome.finished, outcome.errors, outcome.fatal) == (21, 1, None)
    assert len(gone) == 2 and not any(one.blameless for one in gone)
    (error,) = errors_in(records_in(tmp_path / "runs"))
    assert "worker_died" in (tmp_path / "runs" / error).read_text()


class Removing(Silent):
    """Takes the second node away as soon as some cases are stored."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        super().__init__()
        self.cluster, self.folder, self.stored = cluster, folder, list[str]()

    def tick(self) -> None:
        if len(self.records) >= 6 and not self.stored:
            self.stored = sorted(records_in(self.folder / "runs"))
            self.cluster.remove_node(self.cluster.second, allow_graceful=False)


@needs_ray
@pytest.mark.slow
def test_a_lost_node_loses_nothing_and_what_was_stored_is_not_run_again(
    cluster: Any, tmp_path: Path, gone: list[Gone]
) -> None:
    conf, plugins = own_model(tmp_path, sleep_s=0.5, together=2)
    plan = ["model=own", "attack=none", "benchmark.suites=[slack]", f"logdir={tmp_path / 'runs'}"]
    listener = Removing(cluster, tmp_path)
    session = prepare([*plan, *RAY], config_dirs=[conf], plugin_paths=[plugins])
    outcome = session.execute(listener)
    assert (outcome.finished, outcome.errors, outcome.fatal) == (21, 0, None)
    assert len(gone) == 1 and gone[0].blameless
    records = records_in(tmp_path / "runs")
    assert len(records) == len(listener.records) == 21 and not errors_in(records)
    times = Counter(question for _, question in asked(tmp_path))
    again = [question for question, number in times.items() if number > 1]
    assert len({process for process, _ in asked(tmp_path)}) >= 2 and listener.stored
    assert len(times) == 21 and max(times.values()) <= 2 and len(again) <= 3  # what its threads had under way
