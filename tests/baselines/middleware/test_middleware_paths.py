"""Paths in every spelling, checked against what Python and a shell would open."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from baselines.middleware.url_path_checks import find_path_fault

LEAVES = [
    "..", "../", "../x", "../../etc/passwd", "a/../../x", "a/b/../../../x", "./../x", ".//..//x",
    "a/..//../x",
    "..\\x", "a\\..\\..\\x", "..\\/x", "../\\x", "%2e%2e/x", "%2e%2e%2fx", "..%2fx", "%2e./x", ".%2e/x",
    "%2E%2E%2Fx", "%252e%252e%252fx", "..%252fx", "%25252e%25252e/x", "..%5cx", "%2e%2e%5cx", "..%255cx",
    "%c0%ae%c0%ae/x", "..%c0%afx", "%c0%ae%c0%ae%c0%afx", "%e0%80%ae%e0%80%ae/x", "..%e0%80%afx",
    "%f0%80%80%ae%f0%80%80%ae/x", "%u002e%u002e/x", "..%u2215x", "..%u2216x", "\\x2e\\x2e/x",
    "\\u002e\\u002e/x",
    "\\056\\056/x", "．．/x", "..／x", "..∕x", "..⁄x", "․․/x", "..＼x", "…/x", "‥/x", ".. /x", " ../x",
    "..;/x",
    "..;a=b/x", "...", ".../x", "..../x", "a/....//x", "/etc/passwd", "//etc/passwd", "///etc/passwd",
    "/../etc",
    "/", "\\etc\\passwd", "\\\\server\\share", "//server/share", "C:\\x", "c:/x", "C:x",
    "file:///etc/passwd",
    "FILE:/etc/passwd", "http://site.example/x", "~", "~/x", "~root/x", "~+/x", "a\x00/../x", "x\x00.txt",
    "../x\x00.txt", "a/\n../x", "%00", "x%00.txt", "%2fetc%2fpasswd", "%252fetc%252fpasswd",
    "a/..\\../x", "..%2f..%5cx",
]  # fmt: skip

STAYS = [
    "x.txt", "a/b/c.txt", "./x", "a/./b", "a//b", "x..y", "..x", "x..", "a/..b/c", "file name.txt",
    "report [1].pdf",
    "a%20b.txt", "100%.txt", "ünïcode.txt", "報告.txt", "-rf", ".hidden", "a.b.c", "C++ notes.txt",
    "it's here.txt",
    "a/b/", "50% off.txt", "x~", "a~b/c", "",
]  # fmt: skip

EXPANDS = [
    "$HOME/x", "${HOME}/x", "$(pwd)/../x", "`pwd`/../x", "~/x", "~root/x", "~+/../x", "?./x",
    "/e??/passwd", "/etc/pass*",
    ".{.,}/x", "{..,a}/x", "{,../}x", ".\\./x", "\\../x", "'..'/x", '".."/x', ".''./x",
    '.""./x', "$'..'/x", "$'\\x2e\\x2e/x'",
    "$'\\056\\056/x'", "..\"/\"x", "'/etc/passwd'", "\\/etc/passwd", "${PWD%/*}/x", "${OLDPWD:-..}/x",
    "$PWD/../x",
    ".${nothing}./x", ".$nothing./x", ".$()./x", ".``./x", "$IFS..", "x;cat ../y", "x&&cat ../y",
    "x|cat ../y",
    "<(cat ../y)", "x>../y", "x\n../y", "[.].", "[.][.]/x", ".[.]/x", "@(..)/x", "*/../..", "!x", "a b",
]  # fmt: skip


def test_the_tables_are_long_enough() -> None:
    assert len(set(LEAVES)) >= 60
    assert len(set(EXPANDS)) >= 40


@pytest.mark.parametrize("path", LEAVES)
def test_a_path_that_leaves_its_folder_is_refused_in_every_encoding(path: str) -> None:
    assert find_path_fault(path) is not None


@pytest.mark.parametrize("path", EXPANDS)
def test_what_a_shell_expands_is_refused_where_a_shell_reads_it(path: str) -> None:
    assert find_path_fault(path, shell=True) is not None


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_whatever_a_shell_would_open_outside_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "root"
    inside.mkdir()
    candidates = [path for path in {*LEAVES, *STAYS, *EXPANDS} if "\x00" not in path and ";cat" not in path]
    left = []
    for path in candidates:
        script = f'for one in {path}; do realpath -m -- "$one"; done'
        done = subprocess.run(
            ["bash", "-c", script], cwd=inside, capture_output=True, text=True, check=False, timeout=10,
            env={"HOME": "/root", "PATH": os.environ["PATH"]},
        )  # fmt: skip
        outside = [line for line in done.stdout.splitlines() if not (line + "/").startswith(f"{inside}/")]
        if outside:
            left.append(path)
    assert len(left) >= 25, "the shell was expected to leave the folder by many spellings"
    assert [path for path in left if find_path_fault(path, shell=True) is None] == []


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/data/x", True),
        ("/data", True),
        ("/data/a/../b", False),
        ("/database/x", False),
        ("/data/../etc/passwd", False),
        ("x", True),
        ("/etc/passwd", False),
        ("//data/x", False),
    ],
)
def test_an_absolute_path_has_to_lie_below_the_root(path: str, allowed: bool) -> None:
    assert (find_path_fault(path, "/data") is None) is allowed
