"""Shards at a URL: what a run sent is what others fetch, wherever either was stopped."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from records_for_shards import line
from stored_cases import case_of, store_own

from agentsys.errors import ConfigError, Unavailable
from agentsys.records.load import load_runs
from agentsys.records.reading import read_cases
from agentsys.records.shards.pack import pack
from agentsys.records.shards.remote import RemoteShards
from agentsys.records.shards.shard_folder import SHARDS, ShardFolder
from agentsys.records.shards.shard_writer import ShardWriter

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """A bucket of a local server that speaks S3."""
    if find_spec("s3fs") is None or find_spec("moto") is None:
        pytest.skip("needs s3fs and moto[server], which pin another botocore: an environment of their own")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in told.items():
            patched.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()  # they know the server of an earlier test
        bucket = f"runs-{secrets.token_hex(4)}"
        fsspec.filesystem("s3").mkdir(bucket)
        yield f"s3://{bucket}/of/mine"
    server.stop()


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "s3":
        with s3() as bucket:
            yield bucket
    elif request.param == "file":
        yield f"file://{tmp_path / 'there'}"
    else:
        yield f"memory://{secrets.token_hex(8)}/runs"


def found(logdir: Path) -> dict[str, str]:
    folder = ShardFolder(logdir).refresh()
    return {key: folder.read(entry).file for key, entry in folder}


def wanted(*numbers: int) -> dict[str, str]:
    return {line(number).key: line(number).file for number in numbers}


def test_what_was_sent_is_fetched_and_grows(tmp_path: Path, url: str) -> None:
    here, there = tmp_path / "here", tmp_path / "elsewhere"
    writer, sender, fetcher = ShardWriter(here), RemoteShards(url, here), RemoteShards(url, there)
    assert (sender.send(), fetcher.fetch()) == (0, 0)
    writer.append([line(0), line(1)])
    assert (sender.send(), sender.send()) == (2, 0)
    assert (fetcher.fetch(), fetcher.fetch()) == (2, 0)
    assert found(there) == wanted(0, 1)
    writer.append([line(2)])
    ShardWriter(there).append([line(7)])
    assert (sender.send(), fetcher.fetch(), fetcher.send(), sender.fetch()) == (2, 2, 2, 2)
    assert found(here) == found(there) == wanted(0, 1, 2, 7)


def test_a_run_that_was_killed_is_sent_by_the_next_one(tmp_path: Path, url: str) -> None:
    here, there = tmp_path / "here", tmp_path / "elsewhere"
    writer = ShardWriter(here)
    writer.append([line(0)])
    RemoteShards(url, here).send()
    whole = writer.shard.read_bytes()
    writer.shard.write_bytes(whole + line(1).member[:40])  # killed while it wrote
    RemoteShards(url, here).send()
    RemoteShards(url, there).fetch()
    assert found(there) == wanted(0)
    second = ShardWriter(here)
    second.append([line(1)])
    RemoteShards(url, here).send()
    RemoteShards(url, there).fetch()
    assert found(there) == wanted(0, 1)


def test_readers_take_a_url_for_a_folder(tmp_path: Path, url: str) -> None:
    logdir = tmp_path / "runs"
    for number in range(3):
        store_own(logdir, case_of(user_task_id=f"user_task_{number}"))
    frame = load_runs(logdir)
    pack(logdir)
    RemoteShards(url, logdir).send()
    read = read_cases([Path(url)])
    assert [case.user_task_id for case in read.cases] == ["user_task_0", "user_task_1", "user_task_2"]
    columns = [name for name in frame.columns if name != "source"]
    assert load_runs(url)[columns].equals(frame[columns])
    store_own(logdir, case_of(user_task_id="user_task_3"))
    pack(logdir)
    RemoteShards(url, logdir).send()
    assert len(read_cases([Path(url)]).cases) == 4
    with pytest.raises(ConfigError, match="holds no shards"):
        read_cases([Path(f"{url}/nothing")])


def test_a_thread_sends_while_a_run_goes_on(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys.records.shards.remote._EVERY_S", 0.01)
    sent, real = threading.Event(), RemoteShards.send

    def send(self: RemoteShards) -> int:
        count = real(self)
        if count:
            sent.set()
        return count

    monkeypatch.setattr(RemoteShards, "send", send)
    writer = ShardWriter(tmp_path / "here")
    with RemoteShards(url, tmp_path / "here").sending():
        writer.append([line(0)])
        assert sent.wait(60)
        writer.append([line(1)])
    RemoteShards(url, tmp_path / "there").fetch()
    assert found(tmp_path / "there") == wanted(0, 1)


def test_names_from_there_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    files, root = fsspec.filesystem("memory"), f"/{secrets.token_hex(8)}"
    for name in ("..\\evil.index", ".hidden.index", "run.sh", "a-1-1-x.index"):
        files.pipe_file(f"{root}/{SHARDS.as_posix()}/{name}", b"")
    RemoteShards(f"memory:/{root}", tmp_path).fetch()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a-1-1-x.index"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("results/runs", "is no URL"),
        ("ftp://me:secret@host/runs", "credentials by the environment"),
        ("nosuch://host/runs", "Cannot use nosuch://host/runs"),
    ],
)
def test_urls_that_cannot_be_used_are_told_in_a_line(tmp_path: Path, url: str, says: str) -> None:
    with pytest.raises((ConfigError, Unavailable), match=says) as refused:
        RemoteShards(url, tmp_path)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_url_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o500)
    ShardWriter(tmp_path / "here").append([line(0)])
    with pytest.raises(ConfigError, match=r"Cannot write to file://.*Records stay in"):
        RemoteShards(f"file://{tmp_path / 'there'}/runs", tmp_path / "here").send()
