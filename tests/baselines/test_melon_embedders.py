"""Turning texts into vectors: offline n-grams, OpenAI's service over loopback, and a class of one's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from posted_server import one_certificate, serve_posts
from scripted_for_melon import Chosen

from agentsys.errors import ConfigError
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.trace import Tracer, use_tracer
from baselines.melon import Melon
from baselines.melon.embedders import MOST_TEXTS, CharNgrams, OpenAIEmbeddings, build_embedder, normalize_rows


class EmbeddingServer:
    """Keeps the bodies of all requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""


def _vectors(body: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"index": place, "embedding": [len(text), sum(text.encode())]}
        for place, text in enumerate(body["input"])
    ]
    return {"data": rows[::-1], "model": "m-1", "usage": {"prompt_tokens": 7 * len(rows)}}


@contextmanager
def embedding_server(
    answer: Callable[[dict[str, Any]], Any] = _vectors, failures: int = 0, status: int = 500
) -> Iterator[EmbeddingServer]:
    """A server that fails as often as it is told, and then answers."""
    kept = EmbeddingServer()

    def reply(raw: bytes) -> tuple[int, bytes]:
        body = json.loads(raw)
        kept.bodies.append(body)
        failed = len(kept.bodies) <= failures
        said = {"error": {"message": "no: sk-very-secret-123"}} if failed else answer(body)
        return (status if failed else 200), json.dumps(said).encode()

    with serve_posts(reply) as address, mock.patch.dict(os.environ, SSL_CERT_FILE=one_certificate()):
        os.environ.pop("SSL_CERT_DIR", None)
        kept.url = f"{address}/v1"
        yield kept


PRICE = {"prompt": 0.13, "completion": 0.0, "as_of": "2024-01-25"}
ONCE = {"attempts": 1}


def alike(one: str, other: str) -> float:
    rows = normalize_rows(CharNgrams().embed([one, other]), 2)
    return float(rows[0] @ rows[1])


@given(st.text(min_size=2), st.text(min_size=2))
def test_ngram_vectors_have_a_direction_and_cosines_between_0_and_1(one: str, other: str) -> None:
    assert -1e-9 <= alike(one, other) <= 1 + 1e-9
    assert alike(one, one) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("send_money(recipient = SE35, amount = 10)", "send_money(recipient = SE35, amount = 10.0)", True),
        ("send_money(recipient = SE35, amount = 10)", "send_money(amount = 10, recipient = SE35)", True),
        ("send_money(recipient = SE35, amount = 10)", "get_most_recent_transactions(n = 100)", False),
        ("get_webpage(url = www.a-site.com)", "send_direct_message(recipient = Bob, body = Hello)", False),
    ],
)
def test_the_offline_threshold_tells_slips_of_spelling_from_other_calls(
    one: str, other: str, same: bool
) -> None:
    assert (alike(one, other) > 0.7) is same


def at(server: EmbeddingServer, **options: Any) -> OpenAIEmbeddings:
    return OpenAIEmbeddings("m", None, **{"base_url": server.url, "retry": ONCE, **options})


def test_texts_go_out_in_batches_and_vectors_come_back_in_their_order() -> None:
    texts = [f"call_{place}()" for place in range(MOST_TEXTS + 3)]
    with embedding_server() as server, use_tracer(Tracer()) as tracer:
        vectors = at(server, price=PRICE).embed(texts)
    assert vectors == [[float(len(text)), float(sum(text.encode()))] for text in texts]
    assert [len(body["input"]) for body in server.bodies] == [MOST_TEXTS, 3]
    assert server.bodies[0]["model"] == "m"
    booked = [call for span in tracer.spans for call in span.calls]
    assert [(call.role, call.usage.prompt) for call in booked] == [
        ("melon_embedding", 7 * MOST_TEXTS),
        ("melon_embedding", 21),
    ]
    assert booked[1].cost_usd == pytest.approx(21 * 0.13 / 1e6)


def test_an_error_that_passes_is_asked_again() -> None:
    with embedding_server(failures=2) as server:
        patient = at(server, retry={"attempts": 3, "base_s": 0.0})
        assert len(patient.embed(["a()"])) == 1
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "answer", [{}, [], {"data": []}, {"data": [{"index": 3, "embedding": [1.0]}]}, {"data": ["x"]}, "x", None]
)
def test_an_answer_that_holds_no_vectors_is_malformed(answer: Any) -> None:
    with embedding_server(answer=lambda body: answer) as server, pytest.raises(ModelError) as caught:
        at(server).embed(["a()"])
    assert caught.value.kind is ErrorKind.MALFORMED_REPLY


def test_a_refused_key_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-very-secret-123")
    with embedding_server(failures=9, status=401) as server, pytest.raises(ModelError) as caught:
        OpenAIEmbeddings("m", "A_KEY", base_url=server.url, retry=ONCE).embed(["a()"])
    assert caught.value.kind is ErrorKind.BAD_KEY
    assert "secret" not in str(caught.value)


def test_without_its_key_the_defense_can_be_built_and_shown_but_not_run() -> None:
    defense = Melon()
    assert defense.prompts()
    with mock.patch.dict(os.environ, {"OPENAI_API_KEY": ""}):
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"OPENAI_API_KEY.*defense\.melon\.embedder=char_ngrams"):
                defense.pipeline(mock.Mock(), mock.Mock())


def test_for_a_simulated_model_only_openais_embedder_is_replaced() -> None:
    rehearsed = Melon("melon_compat", redact="newest", openai={"api_key_env": "NO_SUCH"}).rehearsed()
    assert (rehearsed.name, rehearsed.settings.redact) == ("melon_compat", "newest")
    model = mock.Mock()
    model.name = "m"
    turn = rehearsed.pipeline(model, mock.Mock(system_message="Hi")).elements[-1].elements[-1]
    assert (turn.embedder.name, turn.threshold) == ("char_ngrams", 0.7)
    own = Melon(embedder=Chosen(), threshold=0.5)
    assert own.rehearsed() is own


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Melon(redact="all"), "redact 'all'"),
        (lambda: Melon(on_failure="pass"), "on_failure 'pass'"),
        (lambda: Melon(call_style="x"), "call_style 'x'"),
        (lambda: Melon(show_errors="yes"), "show_errors is 'yes'; give true or false"),
        (lambda: Melon(key_arguments={"send_money": "amount"}), "key_arguments"),
        (lambda: Melon(threshold=2.0), "no cosine"),
        (lambda: Melon(threshold="high"), "no cosine"),  # type: ignore[arg-type]
        (lambda: Melon(threshold={"char_ngrams": 0.5}), "no threshold for embedder 'openai'"),
        (lambda: build_embedder("char_ngram", {}), "Did you mean char_ngrams"),
        (lambda: build_embedder("no.such.Class", {}), "plugin-path"),
        (lambda: build_embedder("collections.Counter", {}), "a method `embed"),
        (lambda: build_embedder("openai", {"modle": "x"}), "modle"),
        (lambda: build_embedder("openai", {"price": {"prompt": -1}}), "prompt"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
