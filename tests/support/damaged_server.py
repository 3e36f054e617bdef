"""`DamagedModel`: the simulated model behind a server that spoils some of its replies on the wire."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys.models.providers.openai_wire import read_openai_reply
from agentsys.models.providers.reply_reader import Reading
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.simulated_model import SimulatedModel

NAMES = (
    *("{}<|channel|>commentary", "functions.{}", "default_api:{}", " {}", "{}\n", "{}:0", "tools.{}", "{}()"),
    *("<|constrain|>{}", "call_{}", "mail/{}", "{}<|message|>", "{}__0", "to=functions.{}"),
)
"""Ways in which servers spoil the name of a tool."""
TEXTS = (
    '<tool_call>\n{{"name": "{0}", "arguments": {1}}}\n</tool_call>',
    '<｜DSML｜invoke name="{0}">{1}</｜DSML｜invoke>',
    "commentary to=functions.{0} json{1}",
    "functions.{0}:0{1}",
    "{0}{1}",
    '{{"arguments": {1}, "tool": "{0}"}}',
    "Action: {0}\nAction Input: {1}",
    '[TOOL_REQUEST]{{"name": "{0}", "arguments": {1}}}[END_TOOL_REQUEST]',
)
"""Ways in which a call is passed on as text."""
BODIES = (
    "as_it_is",
    "no_calls",
    "text_beside",
    "own_choices",
    "in_thoughts",
    "older_field",
    "half_arguments",
)
"""What else may happen to a reply that holds calls."""


class DamagedModel(SimulatedModel):
    """Answers as the simulated model does, and spoils replies of the acting agent by chance.

    A word for the ending that is empty is the right one; a name's or a text's way that is empty leaves calls alone.
    """

    def __init__(
        self,
        *,
        reasons: Sequence[str] = ("",),
        names: Sequence[str] = ("",),
        texts: Sequence[str] = ("",),
        bodies: Sequence[str] = ("as_it_is",),
        share: float = 0.3,
        luck: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.ways, self.share, self.luck = (reasons, names, texts, bodies), share, luck

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer over the wire of chat completions."""
        reply = super().complete(request)
        turn = f"{self.luck} {len(request.messages)} {request.messages[-1]['content']}"
        draw = random.Random(turn)  # the same question is spoilt alike when it is asked again
        spoilt = request.role in ACTING_ROLES and draw.random() < self.share
        ways = [draw.choice(list(way)) if spoilt else "" for way in self.ways]
        body = write_body(reply, *ways)
        return read_openai_reply(json.dumps(body), Reading(request))


def write_body(reply: ChatReply, reason: str, name: str, text: str, body: str) -> dict[str, Any]:
    """The chat completion that a server makes of a reply."""
    made = reply.message["tool_calls"] or []
    calls = [
        {
            "id": call.id or f"call_{place}",
            "type": "function",
            "function": {
                "name": (name or "{}").format(call.function),
                "arguments": json.dumps(dict(call.args))[: 9 if body == "half_arguments" else None],
            },
        }
        for place, call in enumerate(made)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text_of(reply.message), "tool_calls": calls}
    usual = "tool_calls" if calls else "stop"
    if calls and body == "no_calls":
        message |= {"content": None, "tool_calls": []}  # with words nobody could tell it from an answer
    elif calls and body == "text_beside":
        message["content"] = "I will do so."
    elif calls and text:
        written = (text.format(call.function, json.dumps(dict(call.args))) for call in made)
        message |= {"content": "\n".join(written), "tool_calls": []}
        usual = "stop"
    elif calls and body == "in_thoughts":
        call = made[0]
        thought = TEXTS[0].format(call.function, json.dumps(dict(call.args)))
        message |= {"content": None, "tool_calls": [], "reasoning_content": thought}
        usual = "stop"
    elif calls and body == "older_field":
        message |= {"tool_calls": None, "function_call": calls[0]["function"]}
    messages = [message]
    if calls and body == "own_choices":
        messages = [{**message, "tool_calls": [call]} for call in calls]
    choices = [
        {"index": place, "message": one, "finish_reason": reason or usual}
        for place, one in enumerate(messages)
    ]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"object": "chat.completion", "model": "m-1", "choices": choices, "usage": usage}


def write_damaged_config(folder: Path) -> list[str]:
    """Write the YAML of `model=damaged`, and give the options that find it."""
    root = Path(__file__).parents[2]
    plain = (root / "configs" / "model" / "simulated.yaml").read_text(encoding="utf-8")
    own = re.sub(r"_target_: \S+", "_target_: damaged_server.DamagedModel", plain)
    more = "reasons: ['']\nnames: ['']\ntexts: ['']\nbodies: [as_it_is]\nshare: 0.3\nluck: 0\n"
    more += "retry: {attempts: 3, base_s: 0.0, empty_retries: 1}\n"
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "damaged.yaml").write_text(f"{own}\n{more}", encoding="utf-8")
    return [str(folder)]
