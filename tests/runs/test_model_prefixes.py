"""Models by prefix: `model=openai/ID`, `model=vllm/ID@URL`: a card without a YAML, or the YAML of that model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_output import command_output
from paid_server import Answer, paid_server, says

from agentsys import load_runs
from agentsys.base.config_catalog import is_prefixed, list_config_names, load_config
from agentsys.errors import ConfigError
from agentsys.models.build_model import find_model_class, parse_card
from agentsys.records.case import make_safe_name
from agentsys.runs.compose import compose
from agentsys.runs.settings import Settings

ADDRESS = "http://127.0.0.1:8000/v1"


def settings_of(*words: str) -> Settings:
    [cell] = compose([*words, "defense=none", "attack=none"])
    return cell


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/gpt-99", {"name": "gpt-99", "model_id": "gpt-99", "api_key_env": "OPENAI_API_KEY"}),
        ("anthropic/claude-99", {"name": "claude-99", "api_key_env": "ANTHROPIC_API_KEY"}),
        ("google/gemini-99", {"name": "gemini-99", "api_key_env": "GEMINI_API_KEY"}),
        ("litellm/groq/llama-99", {"name": "llama-99", "model_id": "groq/llama-99"}),
        ("litellm/vertex/claude@2099", {"name": "claude-2099", "model_id": "vertex/claude@2099"}),
        ("litellm/openai/gpt-4o", {"name": "litellm-gpt-4o", "model_id": "openai/gpt-4o"}),
        (f"vllm/lab/My-7B@{ADDRESS}", {"name": "my-7b", "model_id": "lab/My-7B", "base_url": ADDRESS}),
    ],
)
def test_a_prefix_makes_a_card_that_can_be_built_and_says_that_its_price_is_not_known(
    name: str, expected: dict[str, Any]
) -> None:
    word = f"model={name}"
    assert shlex.quote(word) == word, "a shell takes it as it is"
    cell = settings_of(word)
    assert {key: cell.model[key] for key in expected} == expected
    assert cell.labels["model"] == expected["name"]
    card = parse_card(cell.model)
    assert (card.price, card.simulated) == (None, False)
    assert find_model_class(card.name, cell.model["_target_"])


@pytest.mark.parametrize("name", list_config_names("model"))
def test_the_id_of_a_shipped_model_is_that_model(name: str) -> None:
    card = load_config("model", name)
    prefix = {"OpenAI": "openai", "Anthropic": "anthropic", "Google": "google"}.get(
        str(card["_target_"]).rpartition(".")[2].removesuffix("Model")
    )
    own_server = prefix == "openai" and card.get("base_url") and card.get("api_key_env") is None
    if prefix is None or (card.get("base_url") and not own_server) or name == "qwen3-32b-thinking":
        pytest.skip("no model of these providers, or a second YAML of one")
    expected = settings_of(f"model={name}")
    by_prefix = settings_of(f"model={'vllm' if own_server else prefix}/{card['model_id']}")
    if by_prefix.labels != expected.labels:
        assert by_prefix.model["model_id"] == card["model_id"], "another YAML has the same id"
        pytest.skip(f"{by_prefix.model['name']} has the same id")
    assert (by_prefix.model, by_prefix.labels) == (expected.model, expected.labels)
    assert by_prefix.identity == expected.identity, "finished cases of the one are those of the other"


def test_ids_of_other_alphabets_are_read_and_do_not_share_their_records() -> None:
    ids = ("模型-甲", "模型-乙", "ä:x", "ö:x", "Ä:x", "x")
    cells = compose(
        [f"model={','.join(repr(f'openai/{model_id}') for model_id in ids)}", "defense=none", "attack=none"]
    )
    names = [cell.model["name"] for cell in cells]
    assert [name.rpartition("-")[0] or name for name in names] == [
        "模型-甲",
        "模型-乙",
        "ä-x",
        "ö-x",
        "ä-x",
        "x",
    ]
    assert len({make_safe_name(name) for name in names}) == len(ids)
    assert [cell.model["model_id"] for cell in cells] == [*ids]


def test_a_shipped_model_at_another_address_is_the_same_row() -> None:
    here = settings_of("model=qwen2.5-7b-instruct")
    there = settings_of("model=vllm/Qwen/Qwen2.5-7B-Instruct@http://10.0.0.1:9/v1")
    assert there.model == {**here.model, "base_url": "http://10.0.0.1:9/v1"}
    assert there.labels == here.labels


def test_a_yaml_of_ones_own_is_taken_as_well(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    card = load_config("model", f"vllm/lab/x@{ADDRESS}") | {"name": "mine", "max_tokens": 7}
    (tmp_path / "model" / "mine.yaml").write_text(yaml.safe_dump(card))
    [cell] = compose(["model=vllm/lab/x"], [tmp_path])
    assert (cell.labels["model"], cell.model["max_tokens"]) == ("mine", 7)


@pytest.mark.parametrize(
    "words",
    [
        [f"model=openai/a,vllm/b@{ADDRESS}"],
        ["experiment=table2", f"sweep.model=[openai/a,vllm/b@{ADDRESS}]"],
        ["experiment=table2", f"model='openai/a','vllm/b@{ADDRESS}'"],
    ],
)
def test_prefixes_are_swept_like_other_models(words: list[str]) -> None:
    cells = compose([*words, "defense=none", "attack=none"])
    assert [(cell.model["name"], cell.model["base_url"]) for cell in cells] == [("a", None), ("b", ADDRESS)]


def test_options_roles_and_an_attacker_take_prefixes() -> None:
    words = ["model.temperature=null", "model.roles.worker=anthropic/c", "attack=pair"]
    [cell] = compose(["model=openai/a", *words, "attack.attacker=google/g", "defense=none"])
    assert cell.labels["model"] == "a+roles.worker=anthropic/c+temperature=None"
    assert {name: other["model_id"] for name, other in cell.others.items()} == {
        "anthropic/c": "c",
        "google/g": "g",
    }


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("opnai/x", "Did you mean openai?"),
        ("groq/llama", "model=litellm/groq/llama"),
        ("openai/", "model=openai/ID"),
        ("vllm/@http://h/v1", "model=vllm/ID"),
        ("vllm/x", f"model=vllm/x@{ADDRESS}"),
        ("vllm/x@", f"model=vllm/x@{ADDRESS}"),
        ("vllm/x@127.0.0.1:8000", "model=vllm/x@http://HOST:PORT/v1"),
        ("vllm/x@ftp://h", "model=vllm/x@http://HOST:PORT/v1"),
        ("vllm/x@http://me:secret@h/v1", "holds no password"),
        ("openai/x@http://h/v1", "model=vllm/x@URL"),
        ("anthropic/x@https://me:secret@h", "model=anthropic/x model.base_url=URL"),
        ("litellm/groq/x@http://h", "model=litellm/groq/x model.base_url=URL"),
    ],
)
def test_a_wrong_prefix_is_one_line_with_a_mend(typed: str, advice: str) -> None:
    for word in (f"model={typed}", f"model.roles.worker={typed}"):
        with pytest.raises(ConfigError) as caught:
            compose(["model=gpt-4o", word, "defense=none"] if "roles" in word else [word])
        assert advice in str(caught.value) and "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_the_plan_names_what_has_no_price_and_the_list_names_the_prefixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "run",
        "model=openai/gpt-99,gpt-4o",
        "limit_per_suite=1",
        "benchmark.suites=banking",
        "--dry-run",
    )
    assert "cost unknown (no price: gpt-99)" in command_output(*words, columns=200)
    assert "In all 1 case, " in command_output("run", "model=openai/gpt-99", *words[2:], columns=200)
    listed = command_output("list", "models", columns=200)
    assert "vllm/ID@URL" in listed and "cost is then unknown" in listed
    assert not any(map(is_prefixed, list_config_names("model")))


def answer_at_once(_: int, body: dict[str, Any]) -> Answer:
    return says("Done.")


def test_a_server_of_ones_own_is_run_without_a_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with paid_server(answer_at_once) as server:
        words = ("limit_per_suite=1", "benchmark.suites=banking", "preflight=false", "logdir=runs")
        command_output("run", f"model=vllm/lab/Tiny@{server.url}", "defense=none", "attack=none", *words)
    frame = load_runs("runs")
    assert set(frame["model"]) == {"tiny"}
    assert "cost unknown" in command_output("results", "runs", columns=200)
