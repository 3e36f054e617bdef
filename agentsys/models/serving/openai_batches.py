"""OpenAI's files and batches: what a client sends to them, and what it gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agentsys.models.providers.sdk_model import ROLE_HEADER
from agentsys.models.serving.batch_desk import BatchDesk, LineEnd, LineResult, ServedBatch, ServedLine
from agentsys.models.serving.openai_responses_wire import RESPONSES
from agentsys.models.serving.openai_wire import OPENAI
from agentsys.models.serving.responses import Response, json_response, problem_response
from agentsys.models.serving.wire import Json, Problem, WireError

FILES, BATCHES = "/v1/files", "/v1/batches"
_ENDPOINTS = {"/v1/chat/completions": OPENAI, "/v1/responses": RESPONSES}
_NAME = re.compile(rb'name="([^"]*)"')
_DAY_S = 86_400


def get(desk: BatchDesk, path: str) -> Response | None:
    """Answer a GET; None if the path is none of these."""
    match path.removeprefix("/v1/").split("/"):
        case ["batches"]:
            listed = [_batch(desk, batch) for batch in _ours(desk)]
            return json_response({"object": "list", "data": listed, "has_more": False})
        case ["batches", name]:
            found = desk.get(name)
            return _unknown(path) if found is None else json_response(_batch(desk, found))
        case ["files", name, "content"]:
            data = desk.files.get(name)
            return _unknown(path) if data is None else Response(200, data, content_type="application/jsonl")
    return None


def post(desk: BatchDesk, path: str, content_type: str, raw: bytes) -> Response | None:
    """Answer a POST; None if the path is none of these. Raises as `anthropic_batches.post`."""
    match path.removeprefix("/v1/").split("/"):
        case ["files"]:
            return json_response(_uploaded(desk, content_type, raw))
        case ["batches"]:
            return json_response(_batch(desk, _created(desk, raw)))
        case ["batches", name, "cancel"]:
            found = desk.get(name)
            if found is None:
                return _unknown(path)
            found.cancelling = True
            return json_response(_batch(desk, found))
    return None


def _ours(desk: BatchDesk) -> list[ServedBatch]:
    return [batch for batch in desk.newest_first() if batch.wire.name != "anthropic"]


def _unknown(path: str) -> Response:
    return problem_response(OPENAI, Problem(404, f"no such object: {path}"))


def _uploaded(desk: BatchDesk, content_type: str, raw: bytes) -> Json:
    parts = _parts(content_type, raw)
    if parts.get("purpose") != b"batch":
        raise WireError("'purpose' must be 'batch' here")
    name, data = f"file-{desk.number()}", parts["file"]
    desk.files[name] = data
    about: Json = {"id": name, "object": "file", "bytes": len(data), "created_at": 0, "filename": name}
    return {**about, "purpose": "batch", "status": "processed"}


def _parts(content_type: str, raw: bytes) -> dict[str, bytes]:
    """The fields of a multipart form."""
    _, _, boundary = content_type.partition("boundary=")
    if not boundary:
        raise WireError("a file must be uploaded as multipart/form-data")
    found = {}
    for part in raw.split(b"--" + boundary.strip('"').encode())[1:-1]:
        head, _, body = part.partition(b"\r\n\r\n")
        if name := _NAME.search(head):
            found[name[1].decode()] = body.removesuffix(b"\r\n")
    return found


def _created(desk: BatchDesk, raw: bytes) -> ServedBatch:
    asked = orjson.loads(raw)
    wire = _ENDPOINTS.get(asked["endpoint"])
    data = desk.files.get(asked["input_file_id"])
    if wire is None or data is None or asked.get("completion_window") != "24h":
        raise WireError("unknown endpoint, input_file_id or completion_window")
    about = {name: asked.get(name) for name in ("endpoint", "input_file_id", "metadata")}
    lines, errors = _lines(data, asked["endpoint"])
    if errors:
        return desk.refused(wire, {**about, "errors": errors})
    return desk.open(wire, lines, about)


def _lines(data: bytes, endpoint: str) -> tuple[list[ServedLine], list[Json]]:
    """A file's requests, and what is wrong with it."""
    lines, errors, seen = list[ServedLine](), list[Json](), set[str]()
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            asked = orjson.loads(line)
            found = _line(asked)
        except (ValueError, TypeError, KeyError, AttributeError):
            errors.append(_wrong("invalid_json_line", number, "This line is not a request in JSON."))
            continue
        if asked.get("url") != endpoint or asked.get("method") != "POST":
            errors.append(_wrong("invalid_url", number, "The url must be the batch's endpoint."))
        if found.custom_id in seen:
            errors.append(_wrong("duplicate_custom_id", number, "The custom_id stands in the file twice."))
        seen.add(found.custom_id)
        lines.append(found)
    if not lines and not errors:
        errors.append(_wrong("empty_file", None, "The input file is empty."))
    return lines, errors


def _line(asked: Any) -> ServedLine:
    role = (asked.get("headers") or {}).get(ROLE_HEADER) or "agent"
    return ServedLine(str(asked["custom_id"]), role, orjson.dumps(asked["body"]))


def _wrong(code: str, line: int | None, message: str) -> Json:
    return {"code": code, "line": line, "message": message, "param": None}


def _batch(desk: BatchDesk, batch: ServedBatch) -> Json:
    results = batch.results or ()
    output = [one for one in results if one.end is LineEnd.SUCCEEDED]
    failed = [one for one in results if one.end not in (LineEnd.SUCCEEDED, LineEnd.MISSING)]
    errors = batch.about.get("errors")
    created = int(batch.created)
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.about["endpoint"],
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": batch.about["input_file_id"],
        "completion_window": "24h",
        "status": _status(batch),
        "output_file_id": _kept(desk, batch, "output", output),
        "error_file_id": _kept(desk, batch, "error", failed),
        "created_at": created,
        "expires_at": created + _DAY_S,
        "request_counts": {
            "total": len(batch.lines),
            "completed": len(output),
            "failed": len(failed),
        },
        "metadata": batch.about["metadata"],
    }


def _status(batch: ServedBatch) -> str:
    if batch.about.get("errors"):
        return "failed"
    if batch.results is None:
        return "cancelling" if batch.cancelling else "in_progress"
    if batch.count(LineEnd.CANCELED):
        return "cancelled"
    return "expired" if batch.count(LineEnd.EXPIRED) else "completed"


def _kept(desk: BatchDesk, batch: ServedBatch, kind: str, results: Sequence[LineResult]) -> str | None:
    if not results:
        return None
    name = f"file-{batch.id}-{kind}"
    desk.files[name] = b"".join(_result(result) for result in results)
    return name


_CODES: Mapping[LineEnd, tuple[str, str]] = {
    LineEnd.EXPIRED: ("batch_expired", "This request could not be executed before the batch expired."),
    LineEnd.CANCELED: ("batch_cancelled", "This request was not executed: the batch was cancelled."),
}


def _result(result: LineResult) -> bytes:
    about = {"id": f"batch_req_{result.custom_id[:16]}", "custom_id": result.custom_id}
    if result.end in _CODES:
        code, message = _CODES[result.end]
        return orjson.dumps({**about, "response": None, "error": {"code": code, "message": message}}) + b"\n"
    start = orjson.dumps(about)[:-1]
    # Written around the body, so that a body which is no JSON spoils its line and no other.
    told = b',"response":{"status_code":%d,"request_id":"req","body":%b},"error":null}\n'
    return start + told % (result.status, result.body)
