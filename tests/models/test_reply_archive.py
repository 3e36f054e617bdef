"""Archives of kept replies: what goes in and comes out, and what does not."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, Usage, assistant
from agentsys.models.wrappers.kept_reply import reply_to
from agentsys.models.wrappers.reply_archive import count_replies, export_replies, import_replies
from agentsys.models.wrappers.reply_store import ReplyStore

GOOD = json.dumps(reply_to(ChatReply(assistant("Hi"), Usage(1, 1), model_id="m-1"), None)).encode()
NAME = f"ab/{'c' * 62}.json"


def packed(file: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file


def test_replies_go_there_and_back(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path / "a")
    store.put("0" * 64, json.loads(GOOD))
    (tmp_path / "a/00" / f"{'1' * 62}.json").write_bytes(b"{")
    (tmp_path / "a/00" / f"{'2' * 62}.damaged").write_bytes(b"{")
    found = count_replies(tmp_path / "a")
    assert (dict(found.models), found.damaged) == ({"m-1": 1}, 2)
    assert export_replies(tmp_path / "a", tmp_path / "x.tar.gz") == 1
    taken = import_replies(tmp_path / "x.tar.gz", tmp_path / "b")
    assert (taken.new, taken.there, taken.refused) == (1, 0, 0)
    assert ReplyStore(tmp_path / "b").get("0" * 64) == store.get("0" * 64)


@pytest.mark.parametrize(
    "name", [f"../{NAME}", f"/{NAME}", "ab/short.json", f"ab/../{NAME}", f"{NAME}/x", f"AB/{'c' * 62}.json"]
)
def test_nothing_gets_out_of_the_folder(name: str, tmp_path: Path) -> None:
    taken = import_replies(packed(tmp_path / "x.tar.gz", (name, GOOD)), tmp_path / "in/b")
    assert (taken.new, taken.refused) == (0, 1)
    assert not list(tmp_path.rglob("*.json"))


def test_links_and_what_is_no_reply_stay_outside(tmp_path: Path) -> None:
    file = packed(tmp_path / "x.tar.gz", (NAME, b'{"message": 1}'), (f"00/{'1' * 62}.json", b"["))
    with tarfile.open(tmp_path / "y.tar", "w") as archive:
        link = tarfile.TarInfo(NAME)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert import_replies(file, tmp_path / "b").refused == 2
    assert import_replies(tmp_path / "y.tar", tmp_path / "b").refused == 1
    assert not (tmp_path / "b").exists()


def test_a_reply_that_is_there_stays(tmp_path: Path) -> None:
    file = packed(tmp_path / "x.tar.gz", (NAME, GOOD))
    import_replies(file, tmp_path / "b")
    (tmp_path / "b" / NAME).write_bytes(b"mine")
    assert import_replies(file, tmp_path / "b").there == 1
    assert (tmp_path / "b" / NAME).read_bytes() == b"mine"


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as an archive of replies"):
        import_replies(tmp_path / "x", tmp_path / "b")


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No replies are kept in"):
        export_replies(tmp_path, tmp_path / "x.tar.gz")
    assert list(tmp_path.iterdir()) == []
    for words in (["info", "nowhere"], ["import", "nowhere", str(tmp_path)], ["export", "nowhere", "x"]):
        done = CliRunner().invoke(app, ["cache", *words])
        assert isinstance(done.exception, ConfigError) and "There is no f" in str(done.exception)
