"""URLs and paths in every spelling: what a client or a shell would open inside is refused, the rest is not."""

from __future__ import annotations

import http.server
import ipaddress
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentsys_plugins.vectors.middleware.url_path_checks import find_path_fault, find_url_fault

INSIDE = [
    "http://localhost/", "http://LOCALHOST/", "http://localhost./", "http://sub.localhost/",
    "http://127.0.0.1/",
    "http://127.0.0.1./", "http://127.1/", "http://127.0.1/", "http://127.255.255.254/",
    "http://2130706433/",
    "http://0x7f000001/", "http://0x7F.0.0.1/", "http://0x7f.1/", "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0177.1/", "http://0000177.0.0.01/", "http://0/", "http://0.0.0.0/", "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/", "http://[::127.0.0.1]/", "http://[64:ff9b::127.0.0.1]/",
    "http://[2002:7f00:1::]/", "http://[fe80::1]/", "http://[fc00::1]/", "http://[fd12:3456::1]/",
    "http://[ff02::1]/", "http://169.254.169.254/latest/meta-data/", "http://169.254.169.254.:80/",
    "http://2852039166/", "http://0xa9fea9fe/", "http://0xa9.0xfe.0xa9.0xfe/",
    "http://0251.0376.0251.0376/",
    "http://0251.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/",
    "http://169.254.170.2/v2/credentials", "http://100.100.100.200/latest/", "http://[fd00:ec2::254]/",
    "http://metadata.google.internal/", "http://metadata.google.internal./", "http://metadata/",
    "http://instance-data/latest/", "http://10.0.0.5/", "http://10.5/", "http://167772165/",
    "http://172.16.0.1/",
    "http://172.31.255.254/", "http://192.168.0.1/", "http://192.168.257/", "http://3232235521/",
    "http://100.64.0.1/", "http://224.0.0.1/", "http://239.255.255.250/", "http://255.255.255.255/",
    "http://240.0.0.1/", "http://198.18.0.1/", "http://intranet/", "http://db.internal/",
    "http://printer.local/",
    "http://router.lan/", "http://127.0.0.1.nip.io/", "http://10.0.0.1.sslip.io/", "http://localtest.me/",
    "http://１２７.０.０.１/", "http://①②⑦.⓪.⓪.①/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://127。0。0。1/",
    "http://%31%32%37.0.0.1/", "http://loc%61lhost/", "http://127%2e0%2e0%2e1/", "http://1\u00ad27.0.0.1/",
    "http://localhost:8080/admin", "http://127.0.0.1:9200/_search", "https://127.0.0.1/",
    "ftp://127.0.0.1/",
    "http:127.0.0.1/", "http:/127.0.0.1/", "http:///127.0.0.1/", "127.0.0.1:8080/x", "localhost/x",
    "http://user@127.0.0.1/", "http://site.example@127.0.0.1/", "http://127.0.0.1@site.example/",
    "http://user:password@site.example/", "http://site.example\\@127.0.0.1/",
    "http://127.0.0.1\\@site.example/",
    "http://127.0.0.1:80\\@site.example:80/", "http://127.0.0.1%00.site.example/",
    "http://127.0.0.1\t.site.example/", "ht\ntp://127.0.0.1/", "//127.0.0.1/", "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://127.0.0.1:6379/_INFO", "dict://127.0.0.1:11211/", "ldap://127.0.0.1/",
    "jar:http://127.0.0.1!/",
    "javascript:alert(1)", "data:text/html,x", "http://", "http://[::1", "http://0x7f.0x0.0x0.0x1.0x1/", "",
]  # fmt: skip
"""Addresses inside, and spellings that parsers disagree about."""

PUBLIC = [
    "http://site.example/", "https://www.site.example:8443/a/b?c=d#e", "http://93.184.216.34/",
    "https://8.8.8.8/",
    "http://[2606:2800:220:1:248:1893:25c8:1946]/", "https://bücher.example/",
    "https://xn--bcher-kva.example/",
    "http://site.example./", "HTTPS://SITE.EXAMPLE/", "http://192-168-0-1.site.example/",
    "http://10.example.org/",
    "www.site.example/page", "http://site.example/?next=http%3A%2F%2F127.0.0.1", "http://127.site.example/",
    "https://192.0.2.example.com/", "https://site.example/@user",
]  # fmt: skip


@pytest.mark.parametrize("url", INSIDE)
def test_an_address_inside_the_network_is_refused_in_every_spelling(url: str) -> None:
    assert find_url_fault(url, None) is not None


@pytest.mark.parametrize("url", PUBLIC)
def test_a_public_page_may_be_opened(url: str) -> None:
    assert find_url_fault(url, None) is None


def opened_by_python(url: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that Python's clients would connect to; None if it is none or needs a name server."""
    try:
        host = urlsplit(url).hostname
        if host is None:
            return None
        found = socket.getaddrinfo(host, 80, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError, UnicodeError):
        return None
    return ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])


@pytest.mark.parametrize("url", [*INSIDE, *PUBLIC])
def test_what_the_socket_library_takes_for_a_private_address_is_refused(url: str) -> None:
    address = opened_by_python(url)
    if address is not None and not address.is_global:
        assert find_url_fault(url, None) is not None


@pytest.fixture(scope="module")
def hits() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine, and the paths that were asked for there."""
    asked: list[str] = []

    class Noting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Noting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], asked
    server.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_whatever_curl_opens_on_this_machine_is_refused(hits: tuple[int, list[str]]) -> None:
    port, asked = hits
    spellings = [
        url for url in INSIDE if url.startswith("http://") and url.count(":") == 1 and "\n" not in url
    ]
    ours = {f"/{n}": f"http://{url.split('/')[2]}:{port}/{n}" for n, url in enumerate(spellings)}
    command = ["curl", "-s", "-o", "/dev/null", "--max-time", "1", "--noproxy", "*", "--globoff"]
    for url in ours.values():
        subprocess.run([*command, url], check=False, timeout=10, capture_output=True)
    reached = {ours[path] for path in asked if path in ours}
    assert len(reached) >= 10, "curl was expected to reach this machine by many spellings"
    assert {url for url in reached if find_url_fault(url, None) is None} == set()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://site.example/a", True),
        ("https://SITE.example./a", True),
        ("https://a.site.example/", False),
        ("https://a.wild.example/", True),
        ("https://a.b.wild.example/", True),
        ("https://wild.example/", True),
        ("https://evilwild.example/", False),
        ("https://site.example.evil.example/", False),
        ("https://bücher.example/", True),
        ("https://xn--bcher-kva.example/", True),
        ("https://other.example/site.example", False),
        ("https://site.example@other.example/", False),
        ("https://sіte.example/", False),
    ],
)
def test_an_allow_list_is_compared_with_the_host_as_it_is_opened(url: str, allowed: bool) -> None:
    domains = ["site.example", "*.wild.example", "bücher.example"]
    assert (find_url_fault(url, domains) is None) is allowed


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
