"""What a hostile or broken server may answer, as data: each mode with the outcomes that are right.

`PORT` in a header stands for the port of a second server, which nobody may talk to.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hostile_server import Answer

KEY = "sk-SECRETKEY-12345-abcdefghijklmnop"
PORT = "OTHER-PORT"
ESCAPES = "\x1b[31mred\x1b]0;PWNED\x07\x9b2J\u202e\u2066"
ASKED_AGAIN = ("malformed_reply",)
OK = ("ok",)


@dataclass(frozen=True)
class Mode:
    """One way to answer."""

    name: str
    answer: Callable[[], Answer]
    kinds: tuple[str, ...]
    """The case's `error_kind`, or `ok`; any of these is right."""


def http(status: object, body: bytes | str = b"", *headers: str, length: object = None) -> bytes:
    """A whole answer."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    given = {line.split(":")[0].lower() for line in headers}
    lines = [f"HTTP/1.1 {status} X", *headers, "Connection: close"]
    if "content-type" not in given:
        lines.append("Content-Type: application/json")
    if "transfer-encoding" not in given and length != "":
        lines.append(f"Content-Length: {len(raw) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def whole(name: str, kinds: tuple[str, ...], *pieces: bytes | float) -> Mode:
    return Mode(name, lambda: iter(pieces), kinds)


def endless(
    name: str, kinds: tuple[str, ...], head: bytes, piece: bytes, pause_s: float | None = None
) -> Mode:
    def answer() -> Iterator[bytes | float]:
        yield head
        while True:
            if pause_s is not None:
                yield pause_s
            yield piece

    return Mode(name, answer, kinds)


def nested(depth: int, inside: str = "1") -> str:
    return '{"a":' * depth + inside + "}" * depth


BIG = "1" + "0" * 30
LONE = "\\ud800\\udfff\\udc00"

# ---- What goes wrong below JSON; the same for every vendor.

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


@lru_cache(maxsize=1)
def bomb() -> bytes:
    """A gigabyte of blanks, packed. It takes seconds to make: have it made before a server has to send it."""
    packer = zlib.compressobj(9, wbits=31)
    block = b" " * 1_000_000
    return b"".join(packer.compress(block) for _ in range(1000)) + packer.flush()


def _transport() -> list[Mode]:
    gz = "Content-Encoding: gzip"
    late = ("timeout",)
    lost = ("connection",)
    return [
        endless("endless fast body", (*late, *ASKED_AGAIN), _HEAD + b"\r\n", b" " * 65536),
        endless("headers without end", (*late, *lost), _HEAD, b"X-More: " + b"b" * 500 + b"\r\n"),
        endless(
            "event stream",
            (*late, *ASKED_AGAIN),
            http(200, "", "Content-Type: text/event-stream", length=""),
            b": keep-alive\n\n",
            0.3,
        ),
        whole("nothing for ever", late, 30.0),
        whole("closed at once", lost),
        whole("a body that ends early", lost, _HEAD + b"Content-Length: 1000\r\n\r\n{}"),
        whole("two lengths", lost, _HEAD + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}"),
        whole(
            "a length of 30 digits", (*lost, *late), _HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}"
        ),
        whole("not HTTP", lost, b"SSH-2.0-OpenSSH_9.6\r\n"),
        # Made when it is sent: it takes two seconds, and every process of tests imports this module.
        Mode("gzip bomb of 1 GB", lambda: iter([http(200, bomb(), gz)]), ASKED_AGAIN),
        whole("gzip that is none", ASKED_AGAIN, http(200, "{}", gz)),
        whole("20 MB of text", ASKED_AGAIN, http(200, b'{"a":"' + b"x" * 20_000_000 + b'"}')),
        whole("HTML page", ASKED_AGAIN, http(200, f"<html>{ESCAPES}</html>", "Content-Type: text/html")),
        whole("not UTF-8", ASKED_AGAIN, http(200, b'{"a": "\xff\xfe\x80"')),
        whole(
            "a charset that is a codec",
            ASKED_AGAIN,
            http(200, "{}", "Content-Type: application/json; charset=zlib"),
        ),
        whole(
            "cookies of 60 kB",
            ASKED_AGAIN,
            http(200, "{}", *(f"Set-Cookie: a{i}={'v' * 500}" for i in range(120))),
        ),
        # -- redirects
        whole("301 to another host", ("bad_request",), http(301, "", f"Location: http://127.0.0.1:{PORT}/")),
        whole(
            "307 with escapes and a password",
            ("bad_request",),
            http(307, "", f"Location: http://u:{KEY}@h/\x1b[31m{KEY}"),
        ),
        # -- errors, with all a server may say in them
        whole(
            "500 with a lone surrogate", ("server_error",), http(500, '{"error":{"message":"' + LONE + '"}}')
        ),
        whole(
            "400 that echoes the key",
            ("bad_request",),
            http(400, json.dumps({"error": {"message": f"header was Bearer {KEY}"}})),
        ),
        whole(
            "400 that echoes the key in base64",
            ("bad_request",),
            http(400, json.dumps({"error": base64.b64encode(f"u:{KEY}".encode()).decode()})),
        ),
        whole(
            "400 that echoes the key in JSON's escapes",
            ("bad_request",),
            http(400, '{"error":{"message":"' + "".join(f"\\u{ord(c):04x}" for c in KEY) + '"}}'),
        ),
        whole(
            "400 with an error of 3 MB",
            ("bad_request",),
            http(400, json.dumps({"error": {"message": "x\x1b" * 1_000_000}})),
        ),
        whole("400 nested 5,000 deep", ("bad_request",), http(400, nested(5000))),
    ]


# ---- What goes wrong inside a reply of the right form, by vendor.


def _openai(message: Any, **more: Any) -> bytes:
    body = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], **more}
    return http(200, body if isinstance(body, str) else json.dumps(body))


def _openai_args(arguments: str) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "no_such_tool", "arguments": "ARGS"}}
    return http(
        200, json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).replace('"ARGS"', arguments)
    )


def _in_openai(call: str) -> bytes:
    return http(200, '{"model":"m","choices":[{"message":{"content":null,"tool_calls":[' + call + "]}}]}")


_CALL = '{"id":"c","function":{"name":"no_such_tool","arguments":"{}"}}'
ODD_OPENAI = [
    whole("arguments nested 120 deep, as an object", ASKED_AGAIN, _openai_args(nested(120))),
    whole("an error under 200", ("server_error",), http(200, '{"error":{"message":"' + LONE + '"}}')),
    whole("integer beyond 64 bits", OK, _openai_args(json.dumps('{"amount":' + BIG + "}"))),
    whole("NaN and Infinity", OK, _openai_args('{"a":NaN,"b":-Infinity}')),
    whole("lone surrogates in an object of arguments", OK, _openai_args('{"' + LONE + '":["' + LONE + '"]}')),
    whole(
        "lone surrogates in text, model and id",
        OK,
        http(
            200,
            _CALL.join(
                [
                    '{"model":"' + LONE + '","choices":[{"message":{"content":"' + LONE + '","tool_calls":[',
                    "]}}]}",
                ]
            ).replace('"c"', f'"{LONE}"'),
        ),
    ),
    whole("a thousand calls", OK, _in_openai(",".join([_CALL] * 1000))),
    whole("the key in the text", OK, _openai({"content": f"your key is {KEY}, or {KEY[:16]} ..."})),
    whole(
        "the key in an argument, escaped",
        OK,
        _openai_args('{"a":"' + "".join(f"\\u{ord(c):04x}" for c in KEY) + '"}'),
    ),
    whole(
        "escapes everywhere",
        OK,
        _openai(
            {
                "content": ESCAPES,
                "tool_calls": [
                    {
                        "id": ESCAPES,
                        "function": {"name": ESCAPES, "arguments": json.dumps({ESCAPES: ESCAPES})},
                    }
                ],
            },
            model=ESCAPES,
        ),
    ),
    whole("a call of 2 MB", OK, _openai_args(json.dumps(json.dumps({"a": "x" * 2_000_000})))),
]


def _anthropic(content: Any, **more: Any) -> bytes:
    return http(200, json.dumps({"type": "message", "model": "m", "content": content, **more}))


def _use(given: str) -> bytes:
    return http(200, '{"content":[{"type":"tool_use","id":"t","name":"no_such_tool","input":' + given + "}]}")


ODD_ANTHROPIC = [
    whole(
        "error under 200",
        ("overloaded",),
        http(200, '{"type":"error","error":{"type":"overloaded_error","message":"' + LONE + '"}}'),
    ),
    whole("surrogates in input", OK, _use('{"' + LONE + '":"' + LONE + '"}')),
    whole(
        "key and escapes in the text",
        OK,
        _anthropic([{"type": "text", "text": f"{KEY}{ESCAPES}"}], model=KEY),
    ),
]


def _google(parts: Any, **more: Any) -> bytes:
    return http(200, json.dumps({"candidates": [{"content": {"parts": parts}}], **more}))


def _function(args: str) -> bytes:
    return http(
        200,
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"no_such_tool","args":'
        + args
        + "}}]}}]}",
    )


ODD_GOOGLE = [
    whole(
        "a blocked prompt",
        ("content_refused",),
        http(200, '{"promptFeedback":{"blockReason":"\\u001b[31mSAFETY"}}'),
    ),
    whole("args beyond 64 bits", OK, _function('{"amount":' + BIG + "}")),
    whole("key and escapes in model and text", OK, _google([{"text": f"{KEY}{ESCAPES}"}], modelVersion=KEY)),
]

ENDS_THE_RUN = [
    whole(
        "401 that echoes the key",
        ("bad_key",),
        http(401, json.dumps({"error": f"wrong key {KEY} {ESCAPES}"})),
    ),
    whole(
        "404 with escapes and the key",
        ("unknown_model",),
        http(404, json.dumps({"error": {"message": f"{ESCAPES} {KEY} model_not_found"}})),
    ),
    whole("402 with a lone surrogate", ("no_credit",), http(402, '{"error":{"message":"' + LONE + '"}}')),
]

TRANSPORT = _transport()
BY_VENDOR = {"openai": ODD_OPENAI, "anthropic": ODD_ANTHROPIC, "google": ODD_GOOGLE}
GOOD = {
    "openai": _openai({"content": "Done."}),
    "anthropic": _anthropic([{"type": "text", "text": "Done."}]),
    "google": _google([{"text": "Done."}]),
}
