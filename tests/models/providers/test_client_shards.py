"""Several clients of one server."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

from agentsys.catalog import node
from agentsys.models.card import model_card
from agentsys.models.provider import build_provider
from agentsys.models.providers.sdk_model import ClientShards


def test_there_are_as_many_clients_as_requests_under_way_need() -> None:
    made = iter(range(100))
    shards = ClientShards(lambda: next(made), each=4)
    with ExitStack() as stack:
        used = Counter(stack.enter_context(shards.one()) for _ in range(10))
        assert used == {0: 4, 1: 4, 2: 2} and len(shards) == 3
    with shards.one() as client:
        assert client == shards.first == 0
    assert len(shards) == 3  # none is made while there is room


def test_threads_never_share_one_beyond_its_number() -> None:
    lock, most, now = threading.Lock(), Counter[object](), Counter[object]()
    shards, together = ClientShards(object, each=3), threading.Barrier(20)

    def use() -> None:
        together.wait(60)
        for _ in range(50):
            with shards.one() as client:
                with lock:
                    now[client] += 1
                    most[client] = max(most[client], now[client])
                with lock:
                    now[client] -= 1

    threads = [threading.Thread(target=use) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most.values()) <= 3 and len(shards) <= 7


def test_a_model_has_no_client_before_it_is_warm_or_asked() -> None:
    config = node("model", "served")
    model: Any = build_provider(config, model_card(config))
    assert len(model._clients) == 0
    model.warm_up()
    first = model._client
    model.warm_up()
    assert len(model._clients) == 1 and model._client is first
