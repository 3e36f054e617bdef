"""`store=shards`: the same records as with files, resumed, set aside and shared as these are."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from small_runs import Silent, canonical, records_in
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.reading import read_cases
from agentsys.records.shards.pack import pack, unpack
from agentsys.records.shards.shard_folder import SHARDS, ShardFolder
from agentsys.runs.session import Session, prepare

SMALL = ["benchmark.suites=[slack]", "user_tasks=[0,1]", "attack=none,direct", "injection_tasks=[1]"]


def planned(logdir: Path, *more: str, again: bool = False) -> Session:
    return prepare([*SMALL, *more, f"logdir={logdir}"], again=again)


def sharded(logdir: Path) -> dict[str, object]:
    folder = ShardFolder(logdir).refresh()
    return {key: canonical(orjson.loads(folder.read(entry).file)) for key, entry in folder}


def test_shards_hold_what_files_hold_and_a_run_goes_on_from_either(tmp_path: Path) -> None:
    assert planned(tmp_path / "files").execute(Silent()).errors == 0
    logdir = tmp_path / "shards"
    planned(logdir, "store=shards", "limit=1").execute(Silent())
    session = planned(logdir, "store=shards")
    assert (session.plan.finished, len(session.plan.todo)) == (2, 2)
    assert session.execute(Silent()).errors == 0
    assert records_in(logdir) == {}
    assert sharded(logdir) == records_in(tmp_path / "files")
    assert len(list((logdir / SHARDS).glob("*.gz"))) == 2
    assert planned(logdir).plan.todo == ()
    assert [case.identity for case in read_cases([logdir]).cases] == [
        case.identity for case in read_cases([tmp_path / "files"]).cases
    ]
    with pytest.raises(ConfigError, match="finished under other settings: seed"):
        planned(logdir, "seed=3")


@pytest.mark.slow
def test_a_case_that_failed_is_run_again_into_either_layout(tmp_path: Path) -> None:
    def spoiled(logdir: Path) -> str:
        session = planned(logdir)
        session.execute(Silent())
        key = session.plan.jobs[0].case.key
        stored = orjson.loads((logdir / key).read_bytes())
        stored["agentsys"] |= {"status": "error", "error_kind": "rate_limit"}
        (logdir / key).write_bytes(orjson.dumps(stored))
        return key

    key = spoiled(tmp_path / "a")
    session = planned(tmp_path / "a", "store=shards")
    assert (session.plan.failed_before, len(session.plan.todo)) == (1, 1)
    session.execute(Silent())
    assert not (tmp_path / "a" / key).exists()
    assert list(sharded(tmp_path / "a")) == [key]
    assert planned(tmp_path / "a").plan.todo == ()
    spoiled(tmp_path / "b")
    pack(tmp_path / "b")
    session = planned(tmp_path / "b", "store=files")
    assert (session.plan.failed_before, len(session.plan.todo)) == (1, 1)
    session.execute(Silent())
    assert list(records_in(tmp_path / "b")) == [key]
    assert planned(tmp_path / "b", "store=shards").plan.todo == ()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["files", "shards"])
def test_again_keeps_the_old_records_aside_as_files(tmp_path: Path, layout: str) -> None:
    planned(tmp_path, "store=shards").execute(Silent())
    old = sharded(tmp_path)
    session = planned(tmp_path, f"store={layout}", "seed=1", again=True)
    assert session.plan.replaced == 4
    assert session.execute(Silent()).errors == 0
    (aside,) = (tmp_path / ".agentsys/aside").iterdir()
    kept = {str(path.relative_to(aside)): path.read_bytes() for path in aside.rglob("*.json")}
    assert {key: canonical(orjson.loads(content)) for key, content in kept.items()} == old
    unpack(tmp_path)
    assert {record["agentsys"]["seed"] for record in records_in(tmp_path).values()} == {1}


@pytest.mark.slow
def test_a_run_on_another_machine_goes_on_from_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pytest.importorskip("fsspec")
    sent = ["store=shards", f"store_url=file://{tmp_path / 'there'}"]
    planned(tmp_path / "one", *sent, "limit=1").execute(Silent())
    session = planned(tmp_path / "other", *sent)
    assert (session.plan.finished, len(session.plan.todo)) == (2, 2)
    session.execute(Silent())
    result = CliRunner().invoke(app, ["results", f"file://{tmp_path / 'there'}", "--format", "json"])
    assert result.exit_code == 0
    assert orjson.loads(result.stdout)
    assert len(read_cases([Path(f"file://{tmp_path / 'there'}")]).cases) == 4
    with pytest.raises(ConfigError, match="store_url needs store=shards"):
        planned(tmp_path / "one", sent[1])


@pytest.mark.slow
def test_the_commands_pack_and_unpack(tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        return result.output if result.exception is None else str(result.exception)

    planned(tmp_path / "runs").execute(Silent())
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    assert call("pack", str(tmp_path / "runs")) == f"{tmp_path / 'runs'}: 4 records packed.\n"
    for command in (["results", "--full"], ["measures"], ["compare", "--by", "attack"]):
        packed, plain = (call(*command, str(tmp_path / name)) for name in ("runs", "copy"))
        assert packed.replace("/runs", "/copy") == plain
    assert call("unpack", str(tmp_path / "runs")) == f"{tmp_path / 'runs'}: 4 records unpacked.\n"
    assert records_in(tmp_path / "runs") == records_in(tmp_path / "copy")
    assert "is no log folder" in call("pack", str(tmp_path / "copy" / ".agentsys"))
