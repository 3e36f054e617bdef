"""Count prompt tokens of defenses by how a server writes tools, and what a prompt cache leaves of their price.

    python perf/tool_renderers.py LOG_FOLDER [DEFENSE,...]

The requests are those of 32 benign simulated cases of AgentDojo. Tools as compact JSON, as JSON with spaces (what a
chat template dumps) or as TypeScript (what is shown to models whose vendors do not say); tokens are OpenAI's o200k,
whose table litellm carries. The cache keeps, within a case, every prompt's blocks of 128 tokens, from 1,024 on.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, text_of
from agentsys.models.trace import get_current_tracer
from agentsys.models.wrappers.accounting import RecordingModel

_LITELLM = find_spec("litellm")
assert _LITELLM is not None and _LITELLM.origin is not None
# Not imported: it would ask the network for prices.
os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(_LITELLM.origin).parent / "litellm_core_utils" / "tokenizers")
DEFENSES = "none,agentsys,agentsys_lean,drift,progent"
CASES = ["model=simulated", "attack=none", "user_tasks=[0,1,2,3,4,5,6,7]", "executor.workers=1"]
RENDERERS: dict[str, Callable[[ToolSpec], str]] = {
    "compact JSON": lambda tool: json.dumps(tool.json_object, separators=(",", ":")),
    "spaced JSON": lambda tool: json.dumps(tool.json_object),
    "TypeScript": lambda tool: tool.signature,
}
_BLOCK, _LEAST = 128, 1024
CACHED_PRICES = (0.5, 0.1)
"""What a token read from a cache costs beside another one, by vendor."""
asked: dict[str, list[ChatRequest]] = defaultdict(list)
"""Key of a case -> its requests, in order."""


def note_requests() -> None:
    """Note every request that a case books."""
    complete = RecordingModel.complete

    def noting(self: RecordingModel, request: ChatRequest) -> ChatReply:
        if case := get_current_tracer().case:  # What is asked once for a toolset is booked to none.
            asked[case].append(request)
        return complete(self, request)

    RecordingModel.complete = noting  # type: ignore[method-assign]


def write_prompt(request: ChatRequest, render: Callable[[ToolSpec], str]) -> str:
    """A request as one text, tools first."""
    lines = ["\n".join(map(render, request.tools))]
    for message in request.messages:
        calls = message["tool_calls"] or () if message["role"] == "assistant" else ()
        said = (message["error"] or "") if message["role"] == "tool" else ""
        called = [
            json.dumps({"name": call.function, "arguments": dict(call.args)}, default=str) for call in calls
        ]
        lines.append("\n".join([message["role"], text_of(message), said, *called]))
    return "\n".join(lines)


def count_cached(prompt: Sequence[int], kept: set[int]) -> int:
    """Tokens of a prompt that stand in the cache; its own blocks are added."""
    cached, is_hit = 0, True
    for end in range(_BLOCK, len(prompt) + 1, _BLOCK):
        key = hash(tuple(prompt[:end]))
        is_hit = is_hit and key in kept
        cached = end if is_hit else cached
        kept.add(key)
    return cached if cached >= _LEAST else 0


def main() -> None:
    """Run the cases, then count."""
    import tiktoken

    from agentsys.cli import main as run_command

    defenses = sys.argv[2] if len(sys.argv) > 2 else DEFENSES
    sys.argv = ["agentsys", "run", *CASES, f"defense={defenses}", f"logdir={sys.argv[1]}"]
    note_requests()
    try:
        run_command()
    except SystemExit as ended:
        print(f"exit status {ended.code or 0}")
    encode = tiktoken.get_encoding("o200k_base").encode_ordinary
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for case, requests in asked.items():
        defense = case.split("__")[1]  # A record's folder: model, defense, benchmark.
        for name, render in RENDERERS.items():
            kept: set[int] = set()
            for request in requests:
                prompt = encode(write_prompt(request, render))
                counts = found[defense, name]
                counts[0] += len(prompt)
                counts[1] += count_cached(prompt, kept)
    for name in RENDERERS:
        for defense in defenses.split(","):
            total, cached = found[defense, name]
            plain, plain_cached = found["none", name]
            prices = [
                (total - (1 - price) * cached) / (plain - (1 - price) * plain_cached)
                for price in CACHED_PRICES
            ]
            print(
                f"{name:13} {defense:15} {total / plain:6.2f} x  cached {cached / total:4.0%}  price "
                + "  ".join(f"{price:.2f}" for price in prices)
            )


if __name__ == "__main__":
    main()
