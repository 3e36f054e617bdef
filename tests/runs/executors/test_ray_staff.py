"""Which workers of a Ray cluster count as gone, and whose fault it was, with a Ray that only pretends."""

from __future__ import annotations

import sys
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentsys.runs.executors import ray_nodes
from agentsys.runs.executors.messages import Orders, Ready, WorkerSpent
from agentsys.runs.executors.ray_nodes import RayHand, RayStaff
from agentsys.runs.executors.staff import Gone

NODES = ("north", "south")


class RayError(Exception):
    """As Ray's."""


class ActorUnavailableError(RayError):
    """As Ray's."""


class Calls:
    """An actor's method."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    def options(self, **_: object) -> Calls:
        return self

    def remote(self, *_: object) -> Actor:
        return self.actor


class Actor:
    """A worker: what `say` comes to, call by call."""

    def __init__(self, node: str) -> None:
        self.node, self.answers = node, deque[Any]()
        self.say = self.hear = Calls(self)


class Pretended(ModuleType):
    """A Ray with two nodes, whose calls are over when there is an answer to them."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.alive = dict.fromkeys(NODES, True)
        self.actors, self.killed, self.soft = list[Actor](), list[Actor](), set[bool]()
        self.exceptions = SimpleNamespace(RayError=RayError, ActorUnavailableError=ActorUnavailableError)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": node, "Alive": alive} for node, alive in self.alive.items()]

    def remote(self, *, scheduling_strategy: Any, **_: object) -> Any:
        def hired(*_: object) -> Actor:
            self.actors.append(Actor(scheduling_strategy.node_id))
            self.soft.add(scheduling_strategy.soft)
            return self.actors[-1]

        return lambda _: SimpleNamespace(remote=hired)

    def wait(self, calls: list[Actor], **_: object) -> tuple[list[Actor], list[Actor]]:
        return [call for call in calls if call.answers], []

    def get(self, call: Actor) -> Any:
        answer = call.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    made, strategies = Pretended(), ModuleType("ray.util.scheduling_strategies")
    strategies.__dict__["NodeAffinitySchedulingStrategy"] = lambda node_id, soft: SimpleNamespace(
        node_id=node_id, soft=soft
    )
    for module in (made, ModuleType("ray.util"), strategies):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(ray_nodes, "_ASK_AGAIN_S", 0.0)
    return made


@pytest.fixture
def staff(ray: Pretended) -> RayStaff:
    orders: Any = object.__new__(Orders)
    return RayStaff(orders, None)


def hired(staff: RayStaff, ray: Pretended) -> tuple[RayHand, Actor]:
    hand = staff.hire()
    assert isinstance(hand, RayHand)
    return hand, ray.actors[-1]


def told(staff: RayStaff) -> list[Any]:
    return [heard.told for heard in staff.heard(0.0)]


def test_each_node_has_as_many_workers_and_a_lost_one_none(ray: Pretended, staff: RayStaff) -> None:
    for _ in range(6):
        staff.hire()
    assert sorted(actor.node for actor in ray.actors) == [*["north"] * 3, *["south"] * 3]
    assert ray.soft == {False}
    ray.alive["north"] = False
    for _ in range(3):
        staff.hire()
    assert {actor.node for actor in ray.actors[6:]} == {"south"}


def test_the_one_that_ended_is_replaced_where_it_was(ray: Pretended, staff: RayStaff) -> None:
    workers = [hired(staff, ray) for _ in range(4)]
    lost = workers[1][1]
    lost.answers.append(RayError("it died"))
    assert len(told(staff)) == 1
    assert hired(staff, ray)[1].node == lost.node


@pytest.mark.parametrize("node_is_up", [True, False])
def test_whose_fault_an_end_was_is_asked_when_ray_knows(
    ray: Pretended, staff: RayStaff, node_is_up: bool
) -> None:
    """At first both look alike: the connection is closed, and all nodes are said to be alive."""
    hand, actor = hired(staff, ray)
    actor.answers += [[Ready(7, "north")], *[ActorUnavailableError("closed")] * 3]
    assert told(staff) == [Ready(7, "north")]
    assert [told(staff) for _ in range(3)] == [[], [], []]
    ray.alive["north"] = node_is_up
    actor.answers.append(RayError("it died\nat length"))
    (gone,) = told(staff)
    assert isinstance(gone, Gone) and gone.blameless is not node_is_up
    assert gone.how == f"{hand.name} " + ("ended (it died)" if node_is_up else "was lost with its node")
    assert told(staff) == []


def test_a_worker_that_speaks_again_has_its_cases_run_elsewhere(ray: Pretended, staff: RayStaff) -> None:
    """What it said meanwhile may be lost, and a driver would wait for it for ever."""
    _, actor = hired(staff, ray)
    spent: Any = object.__new__(WorkerSpent)
    actor.answers += [ActorUnavailableError("closed"), [spent], [spent]]
    assert told(staff) == []
    first, gone = told(staff)
    assert first is spent and gone.blameless
    assert ray.killed == [actor] and told(staff) == []


def test_one_that_cannot_be_reached_keeps_nobody_else_waiting(
    ray: Pretended, staff: RayStaff, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    monkeypatch.setattr(ray_nodes.time, "sleep", slept.append)
    (_, gone), (_, other) = hired(staff, ray), hired(staff, ray)
    gone.answers += [ActorUnavailableError("closed")] * 2
    other.answers.append([Ready(1, "south")])
    assert told(staff) == [Ready(1, "south")] and not slept
    assert told(staff) == [] and len(slept) == 1
