"""Whose runs other people's folders are: what their names say of model and defense, and what stays open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from stored_cases import store_published
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records.case_reader import LoadedCases, read_cases
from agentsys.records.names_file import NAMES_FILE
from agentsys.records.pipeline_names import PipelineNames, make_model_key, split_alone

NAMES = Path(__file__).parents[3] / "shared" / "data" / "pipeline_names.json"


def read_folders(home: Path, *folders: str) -> LoadedCases:
    """What pipelines in folders of these names are read as, each with a case of its own name."""
    for folder in folders:
        store_published(home / Path(folder).parent, pipeline_name=Path(folder).name)
    return read_cases([home])


def list_victims(found: LoadedCases) -> list[tuple[str, str]]:
    return sorted({(case.table_model, case.defense) for case in found.cases})


@pytest.mark.parametrize(
    "name",
    [
        "gpt-9",
        "gpt-9-mini",
        "gpt-9-pro-2031-02-03",
        "o7-mini",
        "gemini-4-flash-lite-preview-05-06",
        "claude-opus-6-20310101",
        "claude-3-7-sonnet-20250219-thinking",
        "command-a-03-2025",
        "grok-9-fast",
        "mistral-large-2411",
        "glm-4.5-air",
        "mistralai_Mixtral-8x7B-Instruct-v0.1",
        "meta-llama/Llama-5-scout-17b-16e-instruct",
        "deepseek-r1-distill-qwen-7b",
        "Qwen3-235B-A22B-Thinking-2507",
        "kimi-k2-0905-preview",
        "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
        "watt-tool-8b",
        "toolace-2-8b",
        "phi-4-reasoning-plus",
        "gpt-oss-120b",
        "amazon.nova-pro-v1:0",
        "local",
        "acme",
        "gpt_4o_mini_2024_07_18",
        "gemma-3-27b-it",
    ],
)
def test_dates_sizes_and_variants_are_of_the_model(name: str) -> None:
    assert split_alone(name) == (name, "none", None)
    assert split_alone(f"{name}-tool_filter") == (name, "tool_filter", None)
    assert split_alone(f"{name}+Repeat-User-Prompt") == (name, "prompt_sandwiching", None)


@pytest.mark.parametrize(
    ("name", "model", "ending"),
    [
        ("gpt-9-fence", "gpt-9", "fence"),
        ("gpt-4o-2024-05-13-my_guard", "gpt-4o-2024-05-13", "my_guard"),
        ("claude-3-5-sonnet-20241022-fence-2", "claude-3-5-sonnet-20241022", "fence-2"),
        ("vendor/gpt-9-mini+wall", "vendor/gpt-9-mini", "wall"),
        ("acme-chat-wall", "acme-chat", "wall"),
        ("gpt-4o-2024-05-13-melon_at", "gpt-4o-2024-05-13", "melon_at"),
        ("nobody-knows-this", "nobody-knows-this", ""),
        ("gpt-9-tool_filter-melon", "gpt-9", "tool_filter-melon"),
        ("gpt-4o-2024-05-13-solar", "gpt-4o-2024-05-13", "solar"),
        ("gpt-4o-llama-guard-3-8b", "gpt-4o", "llama-guard-3-8b"),
        ("gpt-4o_fence", "gpt-4o", "fence"),
        *(
            (f"gpt-4o-2024-05-13{sign}fence", "gpt-4o-2024-05-13", "fence")
            for sign in (*".:~,= ", "__", "--")
        ),
        *(
            (name, name, "")
            for name in ("fence-gpt-4o-2024-05-13", "tool_filter-gpt-4o", "melon_gpt-4o", "drift")
        ),
    ],
)
def test_an_ending_that_nothing_tells_is_open_and_never_no_defense(
    name: str, model: str, ending: str
) -> None:
    parts = split_alone(name)
    assert (parts.model, parts.ending) == (model, ending)
    assert parts.defense == (f"unrecorded ({ending})" if ending else "unrecorded")


def test_what_follows_a_siblings_whole_name_is_the_defense_whatever_it_is_called(tmp_path: Path) -> None:
    endings = ("fence", "my_guard-2", "thinking_guard", "melon_at", "fence-tool_filter")
    found = read_folders(tmp_path, "gpt-9", *(f"gpt-9-{ending}" for ending in endings), "gpt-9-mini")
    assert list_victims(found) == sorted(
        [("gpt-9", "none"), ("gpt-9-mini", "none"), *(("gpt-9", ending) for ending in endings)]
    )
    assert not any("--names" in note for note in found.resolution_notes)


def test_a_date_ends_a_models_name_whatever_its_words_are(tmp_path: Path) -> None:
    for name in ("claude-neo-5-20270203", "claude-neo-5-20270203 - Walled"):
        store_published(tmp_path, pipeline_name=name)
    found = {(case.model, case.defense) for case in read_cases([tmp_path]).cases}
    assert found == {("claude-neo-5-20270203", "none"), ("claude-neo-5-20270203", "Walled")}


def test_the_longest_known_models_name_wins(tmp_path: Path) -> None:
    found = read_folders(
        tmp_path, "zeta-5", "zeta-5-mini", "zeta-5-mini-fence", "zeta-5-lite-wall", "zeta-5-2031-01-01"
    )
    assert list_victims(found) == [
        ("zeta-5", "none"),
        ("zeta-5-2031-01-01", "none"),
        ("zeta-5-lite", "unrecorded (wall)"),  # no sibling says what a lite one is
        ("zeta-5-mini", "fence"),
        ("zeta-5-mini", "none"),
    ]


def test_a_name_of_unknown_words_is_a_model_where_others_begin_with_it(tmp_path: Path) -> None:
    found = read_folders(
        tmp_path, "house-blend", "house-blend-fence", "other-thing-tool_filter", "other-thing"
    )
    assert list_victims(found) == [
        ("house-blend", "fence"),
        ("house-blend", "none"),
        ("other-thing", "none"),
        ("other-thing", "tool_filter"),
    ]


def test_spellings_of_one_model_are_one_model_and_compared(tmp_path: Path) -> None:
    names = ["acme/Zeta-5", "acme_zeta-5-tool_filter", "acme_zeta-5-fence"]
    for name in names:
        store_published(tmp_path, pipeline_name=name)
    assert list_victims(read_cases([tmp_path])) == [
        ("acme_zeta-5", "fence"), ("acme_zeta-5", "none"), ("acme_zeta-5", "tool_filter"),
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert result.exit_code == 0, result.output


def test_benign_and_attacked_runs_of_one_pipeline_in_sibling_folders_complete_each_other(
    tmp_path: Path,
) -> None:
    benign = {"attack_type": None, "injection_task_id": None, "security": None}
    for ending in ("fence", "wall"):
        store_published(tmp_path / "benign", pipeline_name=f"gpt-4o-2024-05-13-{ending}", **benign)
        store_published(tmp_path / "attacked", pipeline_name=f"gpt-4o-2024-05-13-{ending}")
    found = read_cases([tmp_path])
    assert list_victims(found) == [
        ("gpt-4o-2024-05-13", "unrecorded (fence)"),
        ("gpt-4o-2024-05-13", "unrecorded (wall)"),
    ]
    assert len(found.cases) == 4
    assert not any("Several pipelines" in note for note in found.resolution_notes)


def test_the_line_for_a_file_of_names_can_be_pasted_and_settles_what_was_open(tmp_path: Path) -> None:
    found = read_folders(tmp_path, "gpt-9-fence[1]")
    (note,) = found.resolution_notes
    line = note.partition("--names: ")[2]
    assert list(yaml.safe_load(line).values()) == [{"model": "gpt-9", "defense": "fence[1]"}]
    (tmp_path / NAMES_FILE).write_text(line)
    settled = read_cases([tmp_path])
    assert list_victims(settled) == [("gpt-9", "fence[1]")]
    assert "by the file of names" in settled.resolution_notes[0]


def test_compare_exits_with_1_where_nothing_was_compared(tmp_path: Path) -> None:
    read_folders(tmp_path, "gpt-9-fence", "gpt-8-wall")
    result = CliRunner().invoke(app, ["compare", str(tmp_path), "--by", "defense"])
    assert result.exit_code == 1
    assert "--names" in result.output


WORDS = st.sampled_from(
    ["gpt", "9", "4o", "mini", "fence", "x", "2031-01-01", "tool_filter", "melon", "a_b", "Pro", "é", "v", ""]
)
JOINED = st.lists(st.tuples(WORDS, st.sampled_from("-_+/.@")), min_size=1, max_size=6).map(
    lambda parts: "".join(f"{word}{mark}" for word, mark in parts).rstrip("-_+/.@") or "m"
)


@given(st.lists(JOINED, min_size=1, max_size=5))
def test_any_names_are_read_without_losing_a_character_of_a_model(names: Sequence[str]) -> None:
    read = PipelineNames({(name, name) for name in names})
    for name in names:
        parts = read.split(name)
        assert name.startswith(parts.model)
        assert parts.model
        assert parts.defense
        assert read.resolve(name, name).defense == parts.defense


def test_a_key_keeps_dates_and_sizes() -> None:
    spelled = (
        "meta-llama/Llama-3.3-70B-Instruct",
        "meta-llama_llama-3.3-70b-instruct",
        "llama-3.3-70b-instruct",
    )
    assert len({make_model_key(name) for name in spelled}) == 1
    others = (
        "gpt-4o",
        "gpt-4o-2024-05-13",
        "gpt-4o-2024-08-06",
        "gpt-4o-mini",
        "gpt-4.1",
        "llama-3.3-8b-instruct",
    )
    assert len({make_model_key(name) for name in others}) == len(others)


EXPECTED_DEFENSES = {
    "repeat_user_prompt": "prompt_sandwiching", "spotlighting_with_delimiting": "spotlighting_compat",
    "transformers_pi_detector": "protectai", "piguard_detector": "piguard", "tool_filter": "tool_filter",
    "prompt_guard_2_detector": "prompt_guard_2", "melon": "melon", "melon_r": "melon_r", "melon_rp": "melon_rp",
    "drift": "drift", "progent": "progent", "camel": "camel",
}  # fmt: skip


@pytest.mark.parametrize("source", ["xwsdid/MELON", "SaFo-Lab/AgentDyn", "SaFo-Lab/DRIFT", "all"])
def test_every_public_pipeline_is_read_as_the_model_and_defense_that_it_is(source: str) -> None:
    if not NAMES.exists():
        pytest.skip(f"the names of public pipelines are not here ({NAMES.name})")
    listed = [one for one in json.loads(NAMES.read_text()) if source in (one["source"], "all")]
    pairs = [(one["folder"].rpartition("/")[2], one["pipeline_name"]) for one in listed]
    read = PipelineNames(set(pairs))
    models = {
        folder for folder, _ in pairs if not any(folder.endswith(f"-{end}") for end in EXPECTED_DEFENSES)
    }
    models.add("qwen_qwen-2.5-72b-instruct")  # run with Progent alone
    for folder, recorded in pairs:
        model = max((one for one in models if folder.startswith(one)), key=len)
        ending = folder[len(model) + 1 :]
        found = read.resolve(folder, recorded)
        assert (found.defense, found.ending) == (EXPECTED_DEFENSES.get(ending, "none"), None), folder
        assert make_model_key(found.model) == make_model_key(model), folder
