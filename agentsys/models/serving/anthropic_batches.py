"""Anthropic's Message Batches: what a client sends to them, and what it gets."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import orjson

from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving.anthropic_wire import ANTHROPIC
from agentsys.models.serving.batch_desk import BatchDesk, LineEnd, LineResult, ServedBatch, ServedLine
from agentsys.models.serving.responses import Response, json_response, problem_response
from agentsys.models.serving.wire import Json, Problem, WireError, listed

BATCHES = "/v1/messages/batches"
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DAY_S = 86_400


def get(desk: BatchDesk, path: str) -> Response | None:
    """Answer a GET; None if the path is none of these."""
    match path.removeprefix(BATCHES).split("/"):
        case [""]:
            ours = [_batch(batch) for batch in desk.newest_first() if batch.wire is ANTHROPIC]
            return json_response({"data": ours, "has_more": False, "first_id": None, "last_id": None})
        case ["", name]:
            found = desk.get(name)
            return _unknown(path) if found is None else json_response(_batch(found))
        case ["", name, "results"]:
            found = desk.get(name)
            if found is None or found.results is None:
                return _unknown(path)
            return Response(200, b"".join(map(_result, found.results)), content_type="application/x-jsonl")
    return None


def post(desk: BatchDesk, path: str, raw: bytes) -> Response | None:
    """Answer a POST; None if the path is none of these.

    Raises:
        WireError: If it is malformed; also ValueError, TypeError, KeyError or AttributeError.
    """
    match path.removeprefix(BATCHES).split("/"):
        case [""]:
            return json_response(_batch(desk.open(ANTHROPIC, _lines(raw), {})))
        case ["", name, "cancel"]:
            found = desk.get(name)
            if found is None:
                return _unknown(path)
            found.cancelling = True
            return json_response(_batch(found))
    return None


def _unknown(path: str) -> Response:
    return problem_response(ANTHROPIC, Problem(404, f"no such batch: {path}"))


def _lines(raw: bytes) -> list[ServedLine]:
    lines = [_line(asked) for asked in listed(orjson.loads(raw).get("requests"), "requests")]
    names = [line.custom_id for line in lines]
    if not lines or len(set(names)) < len(names) or not all(map(_CUSTOM_ID.fullmatch, names)):
        raise WireError("requests: a custom_id of 1 to 64 letters, digits, - or _ each, no two alike")
    return lines


def _line(asked: Json) -> ServedLine:
    role = (asked.get("headers") or {}).get(ROLE_HEADER) or "agent"
    return ServedLine(str(asked["custom_id"]), role, orjson.dumps(asked["params"]))


def _batch(batch: ServedBatch) -> Json:
    ended = batch.results is not None
    told = (LineEnd.SUCCEEDED, LineEnd.ERRORED, LineEnd.EXPIRED, LineEnd.CANCELED)
    counts = {end.value: batch.count(end) for end in told}
    # One whose result is missing counts all the same, as with a vendor whose file was damaged.
    counts["succeeded"] += batch.count(LineEnd.MISSING)
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if batch.cancelling else "in_progress",
        "request_counts": {"processing": 0 if ended else len(batch.lines), **counts},
        "created_at": _time(batch.created),
        "expires_at": _time(batch.created + _DAY_S),
        "ended_at": _time(batch.created) if ended else None,
        "cancel_initiated_at": None,
        "archived_at": None,
        "results_url": f"{BATCHES}/{batch.id}/results" if ended else None,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _result(result: LineResult) -> bytes:
    if result.end is LineEnd.MISSING:
        return b""
    start = orjson.dumps({"custom_id": result.custom_id})[:-1] + b',"result":{"type":"%b"'
    part = {LineEnd.SUCCEEDED: b',"message":%b', LineEnd.ERRORED: b',"error":%b'}.get(result.end)
    told = b"" if part is None else part % result.body
    return start % result.end.value.encode() + told + b"}}\n"
