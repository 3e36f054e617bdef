"""`agentsys fetch` of published runs, AgentDyn and ASB, against a server on loopback: as expected, or nothing kept."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from needs_guest import needs_guest
from stored_cases import store_published
from typer.testing import CliRunner

from agentsys.benchmarks import fetch_data
from agentsys.benchmarks.asb import asb_data
from agentsys.benchmarks.asb.asb_data import CHECKSUMS, find_sample_folder
from agentsys.benchmarks.fetch_data import fetch_asb, hash_files
from agentsys.cli import app
from agentsys.errors import ConfigError

_TRACES = Path(__file__).parents[2].parent / "shared" / "data"


def packed(files: Mapping[str, bytes], root: str = "agentdojo-0123") -> bytes:
    """An archive as the host packs it: everything below one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def serving_files(contents: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Address of a folder that holds these files, and what is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            asked.append(name)
            self.send_response(200 if name in contents else 404)
            self.end_headers()
            self.wfile.write(contents.get(name, b"no such file"))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/data", asked
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(content: bytes | None) -> Iterator[str]:
    """Address of an archive; None: there is none."""
    with serving_files({} if content is None else {"archive.tar.gz": content}) as (address, _):
        yield f"{address}/archive.tar.gz"


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, bytes]:
    """A repository with the runs of two pipelines."""
    for pipeline in ("gpt-4o-mini-2024-07-18", "other-model"):
        store_published(tmp_path / "made", pipeline_name=pipeline)
        store_published(tmp_path / "made", pipeline_name=pipeline, attack_type=None, injection_task_id=None)
    files = {path.relative_to(tmp_path / "made"): path for path in (tmp_path / "made").rglob("*.json")}
    return {f"runs/{name.as_posix()}": path.read_bytes() for name, path in files.items()} | {
        "README.md": b"x"
    }


def fetch(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["fetch", *words])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_a_pipelines_runs_arrive_and_every_command_reads_them(runs: dict[str, bytes], tmp_path: Path) -> None:
    to = tmp_path / "to"
    with serving(packed(runs)) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(to), "--source", url)
    assert status == 0, said
    assert "2 files, no checksum of these is known" in said
    assert {path.name for path in to.iterdir()} == {"other-model"}
    results = CliRunner().invoke(app, ["results", str(to / "other-model")], catch_exceptions=False)
    assert results.exit_code == 0
    status, said = fetch("agentdojo-runs", "other-model", "--to", str(to), "--source", "http://127.0.0.1:9/x")
    assert (status, "there already" in said) == (0, True)


def test_known_runs_that_are_right_are_kept(
    runs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made" / "other-model"
    known = {"other-model": {"*/*/*/*.json": hash_files(made, "*/*/*/*.json")}}
    monkeypatch.setitem(
        fetch_data.RUNS_SOURCES, "drift-runs", replace(fetch_data.RUNS_SOURCES["drift-runs"], known=known)
    )
    with serving(packed(runs)) as url:
        status, said = fetch("drift-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
        assert (status, "2 files, checksum as expected" in said) == (0, True), said
        # A file that was changed since is seen.
        next((tmp_path / "to").rglob("*.json")).write_text("{}")
        status, said = fetch("drift-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert status != 0
    assert "holds other files already" in said


def test_an_unknown_pipeline_is_told_with_those_that_are_there(
    runs: dict[str, bytes], tmp_path: Path
) -> None:
    with serving(packed(runs)) as url:
        _, said = fetch("agentdojo-runs", "nobody", "--to", str(tmp_path / "to"), "--source", url)
    assert "holds no runs/nobody. Nothing was kept." in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "cannot be had"),
        (None, "HTTP 404"),
        (packed({"runs/other-model/../../evil.json": b"{}"}), "a file named '../../evil.json'"),
    ],
    ids=["no archive", "nothing", "outside"],  # an archive holds the time
)
def test_what_is_no_archive_is_one_line(content: bytes | None, said: str, tmp_path: Path) -> None:
    with serving(content) as url:
        code, told = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert code != 0
    assert said in told
    assert "Nothing was kept" in told
    assert "\n" not in told
    assert not list(tmp_path.rglob("*.json"))


def test_a_torn_archive_leaves_nothing(runs: dict[str, bytes], tmp_path: Path) -> None:
    whole = packed({**runs, "runs/other-model/x.json": b"\x00" * 100_000})
    with serving(whole[: len(whole) * 2 // 3]) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert (status != 0, "cannot be had" in said) == (True, True), said
    assert list((tmp_path / "to").iterdir()) == []


def test_an_archive_that_goes_on_behind_its_end_is_not_read_for_ever(
    runs: dict[str, bytes], tmp_path: Path
) -> None:
    more = gzip.compress(b"\x00" * 3_000_000)
    with serving(packed(runs) + more) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert status != 0 and "goes on behind its end" in said
    assert list((tmp_path / "to").iterdir()) == []


def test_without_a_network_it_is_one_line(tmp_path: Path) -> None:
    status, said = fetch("drift-runs", "--to", str(tmp_path), "--source", "http://127.0.0.1:9/x.tar.gz")
    assert status != 0
    assert "cannot be had (" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agentdojo-run"], "Did you mean agentdojo-runs"),
        (["asb", "gpt-4o"], "takes no PIPELINE"),
        (["agentdojo-runs", "../x"], "is no pipeline's name"),
        (["agentdojo-runs", "--source", "file:///etc/passwd"], "give an http or https address"),
    ],
)
def test_a_slip_is_told(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        CliRunner().invoke(app, ["fetch", *words, "--to", str(tmp_path)], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("archive", "name"),
    [("agentdojo-gpt-4o-mini-2024-07-18", "agentdojo-runs"), ("agentdojo-gpt-4o-2024-05-13-tool_filter", "")],
)
def test_the_digests_are_those_of_the_published_runs(
    archive: str, name: str, published: Callable[[str], Path]
) -> None:
    (folder,) = published(archive).iterdir()
    known = fetch_data.RUNS_SOURCES["agentdojo-runs"].known[folder.name]
    assert {pattern: hash_files(folder, pattern) for pattern in known} == known


@needs_guest("agentdyn")
def test_agentdyn_arrives_and_its_files_are_the_commits(tmp_path: Path) -> None:
    source = _TRACES / "agentdyn" / "agentdyn-package.tar.gz"
    if not source.exists():
        pytest.skip(f"AgentDyn's package is not here ({source.name})")
    with tarfile.open(source) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    with serving(packed(files, "AgentDyn-5353cf7")) as url:
        status, said = fetch("agentdyn", "--to", str(tmp_path / "to"), "--source", url)
    assert status == 0, said
    assert "checksum as expected" in said
    changed = {**files, "src/agentdojo/default_suites/v1/shopping/task_suite.py": b"x = 1\n"}
    with serving(packed(changed)) as url:
        status, said = fetch("agentdyn", "--to", str(tmp_path / "other"), "--source", url)
    assert status != 0
    assert "not those of commit 5353cf7" in said


CONTENTS = {name: f'{{"file": "{name}"}}\n'.encode() for name in CHECKSUMS}
EXPECTED = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_every_file_arrives_and_is_not_asked_for_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "asb"
    with serving_files(CONTENTS) as (address, asked):
        done, _ = fetch_asb(folder, address, EXPECTED)
        assert done.fresh and set(asked) == set(CONTENTS)
        assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
        assert kept(folder) == {*CONTENTS, "SOURCE.txt"}
        assert not fetch_asb(folder, address, EXPECTED)[0].fresh
        assert len(asked) == len(CONTENTS)


def test_a_file_that_differs_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    changed = {**CONTENTS, "all_attack_tools_non_aggressive.jsonl": b"something else"}
    with serving_files(changed) as (address, _), pytest.raises(ConfigError) as caught:
        fetch_asb(tmp_path / "asb", address, EXPECTED)
    said = str(caught.value)
    assert "all_attack_tools_non_aggressive.jsonl" in said
    assert hashlib.sha256(b"something else").hexdigest() in said
    assert EXPECTED["all_attack_tools_non_aggressive.jsonl"] in said
    assert "Nothing was kept" in said
    assert kept(tmp_path) == set()


def test_files_of_before_stay_where_a_download_fails(tmp_path: Path) -> None:
    (tmp_path / "agent_task.jsonl").write_bytes(b"mine")
    half = {"agent_task.jsonl": CONTENTS["agent_task.jsonl"]}
    missing = pytest.raises(ConfigError, match=r"all_normal_tools\.jsonl: HTTP 404")
    with serving_files(half) as (address, _), missing:
        fetch_asb(tmp_path, address, EXPECTED)
    assert (tmp_path / "agent_task.jsonl").read_bytes() == b"mine"
    assert kept(tmp_path) == {"agent_task.jsonl"}


def test_nobody_at_the_other_end_is_one_line(tmp_path: Path) -> None:
    with serving_files(CONTENTS) as (address, _):
        pass
    with pytest.raises(ConfigError, match=r"cannot be reached \(.*Nothing was kept") as caught:
        fetch_asb(tmp_path / "asb", address, EXPECTED)
    assert "\n" not in str(caught.value)
    assert kept(tmp_path) == set()


@pytest.mark.parametrize("address", ["file:///etc", "/etc", "ftp://example.org/x"])
def test_only_the_web_is_a_source(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="give an http or https address"):
        fetch_asb(tmp_path, address, EXPECTED)


def test_the_command_puts_them_where_the_benchmark_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {path.name: path.read_bytes() for path in find_sample_folder().glob("*.jsonl")}
    for name in contents:
        monkeypatch.setitem(asb_data.CHECKSUMS, name, hashlib.sha256(contents[name]).hexdigest())
    for name in set(asb_data.CHECKSUMS) - set(contents):
        monkeypatch.delitem(asb_data.CHECKSUMS, name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with serving_files(contents) as (address, _):
        done = CliRunner().invoke(app, ["fetch", "asb", "--source", address])
    assert done.exit_code == 0, done.output
    assert "benchmark=asb benchmark.data=fetched" in done.output.replace("\n", "")
    assert len(asb_data.load_asb_data("fetched")[0].agents) == 4


def test_a_data_set_nobody_knows_is_one_line() -> None:
    done = CliRunner().invoke(app, ["fetch", "asbb"])
    assert isinstance(done.exception, ConfigError)
    assert "Did you mean asb" in str(done.exception)
