"""Workers on the nodes of a Ray cluster: the worker of `processes`, reached by calls instead of a pipe.

Ray places and watches the processes. No record goes through it: workers store them in the log folder, which
all nodes must see under the same path.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from collections import Counter
from typing import Any

from agentsys.runs.executors.collector import look_as_cases_run
from agentsys.runs.executors.messages import Order, Orders, Ready, Told
from agentsys.runs.executors.staff import Gone, Hand, Heard, drained
from agentsys.runs.executors.worker import CaseWorker

_SAY_WITHIN_S = 2.0
"""How long a worker with nothing to say holds a call."""
_LAST_WORDS_S = 10.0
_ASK_AGAIN_S = 0.5
"""Between two questions to a worker of which Ray does not know whether it lives."""


class RemoteWorker:
    """Stands in a process of Ray's, with one thread for what it hears and one for what it says."""

    def __init__(self, orders: Orders, path: list[str]) -> None:
        import ray

        look_as_cases_run()
        sys.path.extend(place for place in path if place not in sys.path)
        self._said: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._worker = CaseWorker(orders, self._said.put)
        self._worker.__enter__()
        self._node = ray.get_runtime_context().get_node_id()

    def hear(self, order: Order) -> None:
        """Do as the driver says."""
        self._worker.hear(order)

    def say(self) -> list[Told]:
        """What there is to say, waiting a while for the first word."""
        said = drained(self._said, _SAY_WITHIN_S)
        return [Ready(one.pid, self._node) if isinstance(one, Ready) else one for one in said]

    def leave(self) -> list[Told]:
        """End what is still to be ended, and say the last words."""
        self._worker.__exit__(None, None, None)
        return drained(self._said, 0.0)


class RayHand(Hand):
    """A worker on some node as its driver sees it."""

    def __init__(self, actor: Any, number: int, node: str) -> None:
        self.actor, self._number, self.node = actor, number, node
        self.unreachable = False
        """Whether a word of its was lost on the way: it ended, its node did, or the network failed."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"Ray worker {self._number}"

    def send(self, order: Order) -> None:
        """Give an order; one that is gone hears nothing."""
        self.actor.hear.options(concurrency_group="hear").remote(order)


class RayStaff:
    """Workers on the nodes of a cluster, spread over them.

    Args:
        orders: What each is told at its start.
        address: The cluster's; None: the one that this process has joined, or else one of this machine's own
            for this run.

    Raises:
        ConnectionError: If there is no cluster at the address.
    """

    def __init__(self, orders: Orders, address: str | None) -> None:
        import ray

        self._ray, self._orders = ray, orders
        self._ours = not ray.is_initialized()
        if self._ours:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
        self._hired = list[RayHand]()
        self._said = dict[Any, RayHand]()

    def hire(self) -> Hand:
        """Start one more, on the node with the fewest."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._emptiest()
        made = self._ray.remote(
            num_cpus=0,  # it waits for models; how many there are is the user's choice
            max_restarts=0,
            # Ray's "SPREAD" and a soft affinity may put all that ask for no CPU on one node.
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            concurrency_groups={"hear": 1, "say": 1},
        )(RemoteWorker)
        hand = RayHand(made.remote(self._orders, list(sys.path)), len(self._hired) + 1, node)
        self._hired.append(hand)
        self._listen(hand)
        return hand

    def heard(self, timeout_s: float) -> list[Heard]:
        """What the workers said, waiting so long for the first word."""
        if not self._said:
            return []
        ready, _ = self._ray.wait(list(self._said), num_returns=1, timeout=timeout_s)
        more, _ = self._ray.wait(list(self._said), num_returns=len(self._said), timeout=0)
        found = [
            Heard(hand, told)
            for call in dict.fromkeys([*ready, *more])
            for hand in [self._said.pop(call)]
            for told in self._told(hand, call)
        ]
        if not found and any(hand.unreachable for hand in self._said.values()):
            time.sleep(_ASK_AGAIN_S)
        return found

    def _told(self, hand: RayHand, call: Any) -> list[Told | Gone]:
        try:
            said: list[Told] = self._ray.get(call)
        except self._ray.exceptions.ActorUnavailableError:
            # It takes Ray some seconds to find that a node is lost, and whose fault it was hangs on that.
            hand.unreachable = True
            self._listen(hand)
            return []
        except self._ray.exceptions.RayError as error:
            return [self._gone(hand, error)]
        hand.node = next((told.node for told in said if isinstance(told, Ready)), hand.node)
        if hand.unreachable:
            self._ray.kill(hand.actor)  # nobody knows what else it had said
            return [*said, Gone(f"{hand.name} could not be reached for a while", blameless=True)]
        self._listen(hand)
        return list(said)

    def dismiss(self) -> None:
        """End all of them: they have nothing to do any more."""
        leaving = [
            hand.actor.leave.options(concurrency_group="hear").remote() for hand in self._said.values()
        ]
        self._ray.wait(leaving, num_returns=len(leaving), timeout=_LAST_WORDS_S) if leaving else None
        self.kill()

    def kill(self) -> None:
        """End this run's workers, and the cluster if it was started for it; a joined one stays as it is.

        Called again, it asks Ray for nothing, or Ray would start a cluster.
        """
        while self._hired:
            with contextlib.suppress(Exception):  # gone with its node
                self._ray.kill(self._hired.pop().actor)
        self._said.clear()
        if self._ours:
            self._ours = False
            self._ray.shutdown()

    def _emptiest(self) -> str:
        """The node that has the fewest of this run's workers."""
        alive = [str(node["NodeID"]) for node in self._ray.nodes() if node["Alive"]]
        here = Counter(hand.node for hand in self._said.values())
        return min(alive, key=lambda node: here[node])

    def _listen(self, hand: RayHand) -> None:
        self._said[hand.actor.say.options(concurrency_group="say").remote()] = hand

    def _gone(self, hand: RayHand, error: Exception) -> Gone:
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        lost = bool(hand.node) and hand.node not in alive
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Gone(f"{hand.name} {'was lost with its node' if lost else f'ended ({first})'}", blameless=lost)
