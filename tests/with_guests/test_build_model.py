"""Building models from their YAMLs: the shipped ones, roles, scripted ones, and slips."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripted_for_serving import Scripted, says
from served_faults import serve

from agentsys.base.object_import import _warn_moved, find_registered_class, load_registered_classes
from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dir
from agentsys.models.build_model import (
    ModelStack,
    build_stack,
    find_model_class,
    parse_card,
    pick_reply_identity,
)
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, Scene, assistant, text_of, user
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from agentsys.models.wrappers.reply_cache import CacheMode

SCENE = Scene("banking", "user_task_0", None, "none")
OPENAI = "agentsys.models.providers.openai.OpenAIModel"
ASK = ChatRequest([user("Hi")])


class Echo:
    """A provider of a test's own: says its text."""

    def __init__(self, name: str, text: str = "echo", taste: str = "plain") -> None:
        self.name = name
        self.text = text
        self.asked = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        return ChatReply(assistant(self.text or None), cost_usd=1.0)


class Played(Echo):
    """A scripted provider that also dictates injections."""

    def for_scene(self, scene: Scene) -> ChatModel:
        return Echo(self.name, f"{self.text} in {scene.suite}" if self.text else "")

    def read_recorded_injections(self, scene: Scene) -> dict[str, str]:
        return {"vector": scene.suite}

    def read_recorded_results(self, scene: Scene) -> tuple[()]:
        return ()


def node(**more: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.Echo", "name": "echo", "prose_name": "Echo", **more}


def no_other(name: str) -> Mapping[str, Any]:
    raise AssertionError(f"asked for {name}")


def stack(fields: Mapping[str, Any], cache_dir: Path | None = None) -> ModelStack:
    return build_stack(fields, cache_dir=cache_dir, load_model=no_other)


def shipped(name: str) -> dict[str, Any]:
    found = yaml.safe_load((shipped_config_dir() / "model" / f"{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


NAMES = sorted(path.stem for path in (shipped_config_dir() / "model").glob("*.yaml"))
PAPER = ["gpt-4o-mini", "gpt-4o", "gpt-5.1", "claude-3.7-sonnet", "gemini-2.5-pro", "qwen2.5-7b-instruct"]


@pytest.mark.parametrize("name", NAMES)
def test_shipped_yaml_builds_once_its_key_and_required_fields_are_given(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fields = shipped(name)
    if name in ("replay", "litellm"):
        pytest.skip("needs recorded runs, or the litellm extra; tested where they are")
    for value in fields.values():
        if isinstance(value, str) and value.endswith("_API_KEY"):
            monkeypatch.setenv(value, "test-key")
    built = stack(fields, tmp_path)
    assert built.card.name == name
    assert built.is_simulated == (name == "simulated" or name.startswith("served"))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_models_have_key_variable_price_and_context(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = shipped(name)
    card = parse_card(fields)
    assert card.context_tokens
    assert fields["temperature"] == (None if name == "gpt-5.1" else 0.0)
    assert card.cache
    if fields["api_key_env"] is None:
        assert fields["base_url"].startswith("http://127.0.0.1")
        return
    assert card.price is not None
    monkeypatch.delenv(fields["api_key_env"], raising=False)
    with pytest.raises(ConfigError, match=fields["api_key_env"]):
        stack(fields)


def test_served_yaml_reaches_a_served_model_with_its_role() -> None:
    scripted = Scripted(says("hello"))
    with serve(scripted) as server:
        fields = shipped("served") | {"base_url": server.openai_base_url}
        reply = stack(fields).for_scene(SCENE).complete(ChatRequest([user("Hi")], role="worker"))
    assert text_of(reply.message) == "hello"
    assert scripted.asked[0].role == "worker"
    assert scripted.asked[0].temperature == 0.0


def test_unknown_key_is_named_with_model_and_near_matches() -> None:
    with pytest.raises(ConfigError, match=r"Model 'echo': Unknown key 'tasty'. Did you mean taste"):
        stack(node(tasty="sweet"))


def test_missing_argument_is_named() -> None:
    fields = {"_target_": OPENAI, "name": "m", "prose_name": "M", "api_key_env": None}
    with pytest.raises(ConfigError, match="Model 'm' needs model_id"):
        stack(fields)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (None, "no `_target_: module.Class`"),
        ("nowhere", "no `_target_: module.Class`"),
        ("no_such_module.Model", "'echo' YAML names .* there is no module 'no_such_module'"),
        ("agentsys.models.providers.openai.OpenAIModl", "openai.py 'OpenAIModl'. Did you mean OpenAIModel"),
        ("pathlib.Path", "no class with a method `complete`"),
        ("os.system", "no class with a method `complete`"),
    ],
)
def test_wrong_target_is_one_clear_line(target: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        stack(node(_target_=target))
    assert "'echo'" in str(caught.value)


def test_roles_go_to_their_own_models_and_all_is_booked() -> None:
    loaded: list[str] = []

    def load(name: str) -> dict[str, Any]:
        loaded.append(name)
        return node(name=name, text=f"I am {name}", simulated=name == "b")

    built = build_stack(
        node(roles={"worker": "a", "validator": "b", "sanitizer": "b"}), cache_dir=None, load_model=load
    )
    model, tracer = built.for_scene(SCENE), Tracer()
    with use_tracer(tracer):
        answers = {
            role: text_of(model.complete(ChatRequest([user("Hi")], role=role)).message)
            for role in ("agent", "worker", "validator", "sanitizer")
        }
    assert answers == {"agent": "echo", "worker": "I am a", "validator": "I am b", "sanitizer": "I am b"}
    assert loaded == ["a", "b"]
    assert built.is_simulated
    assert model.name == "echo"
    assert [call.role for span in tracer.spans for call in span.calls] == list(answers)


def test_roles_left_null_stay_with_the_model() -> None:
    for roles in (None, {}, {"worker": None}):
        built = stack(node(roles=roles))
        assert built.roles == {}
        assert built.card.roles == {}


def test_provider_is_built_once_finished_and_cached_only_where_the_card_says(tmp_path: Path) -> None:
    for cache, asked in ((True, 1), (False, 2)):
        finished: list[ChatModel] = []

        def finish(model: ChatModel, into: list[ChatModel] = finished) -> ChatModel:
            into.append(model)
            return model

        built = build_stack(node(cache=cache), cache_dir=tmp_path, load_model=no_other, finish=finish)
        replies = [built.for_scene(SCENE).complete(ASK) for _ in range(2)]
        (echo,) = finished
        assert isinstance(echo, Echo)
        assert echo.asked == asked
        assert [reply.from_cache for reply in replies] == [False, cache]
        assert replies[1].cost_usd == (0.0 if cache else 1.0)


def test_only_a_server_may_be_asked_ahead_and_never_where_kept_replies_are_all_there_is(
    tmp_path: Path,
) -> None:
    server, script = stack(node(cache=True), tmp_path), stack(node(_target_=f"{__name__}.Played"))
    kept = build_stack(node(), cache_dir=tmp_path, cache_mode=CacheMode.READ_ONLY, load_model=no_other)
    models = [each.for_scene(SCENE) for each in (server, script, kept)]
    may = [isinstance(model, RecordingModel) and model.side_by_side for model in models]
    assert may == [True, False, False]


def test_scripted_model_is_played_by_scene_never_cached_and_never_asked_twice(tmp_path: Path) -> None:
    fields = node(_target_=f"{__name__}.Played", cache=True)
    built = stack(fields, tmp_path)
    assert text_of(built.for_scene(SCENE).complete(ASK).message) == "echo in banking"
    assert built.read_recorded_injections(SCENE) == {"vector": "banking"}
    assert list(tmp_path.iterdir()) == []
    assert stack(fields | {"text": ""}).for_scene(SCENE).complete(ASK).attempts == 1
    assert stack(node()).read_recorded_injections(SCENE) is None


@pytest.mark.parametrize(
    "now", sorted({c.today for c in load_registered_classes().values() if c.first != c.in_0_1})
)
def test_a_class_that_moved_is_found_under_its_first_name_and_keeps_its_kept_replies(
    now: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = find_registered_class(now).first
    earlier = (
        find_registered_class(now).in_0_1 if first == now else first
    )  # replay is back where it was first
    _warn_moved.cache_clear()
    found = find_model_class("m", earlier)
    assert f"{earlier} has moved" in caplog.text and f"write _target_: {now}" in caplog.text
    assert found is find_model_class("m", now)
    assert f"{found.__module__}.{found.__name__}" == now
    yaml_now = {"_target_": now, "name": "m", "model_id": "m-1", "timeout_s": 5}
    assert pick_reply_identity(yaml_now) == {"_target_": first, "model_id": "m-1"}
    assert pick_reply_identity(yaml_now) == pick_reply_identity({**yaml_now, "_target_": first})
