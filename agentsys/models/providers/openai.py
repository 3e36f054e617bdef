"""`OpenAIModel`: OpenAI's two APIs, and every server that speaks one of them (vLLM, Ollama, ...).

The first part is the Responses API on the wire. Nothing is stored at the provider. A model's reasoning
comes as opaque items, encrypted, each of which must be sent back right before the item it led to and is
refused alone. They stand in the message's content as thinking blocks that know what they led to; so
whoever rewrites a conversation, and drops a call or a whole message, drops its reasoning too, and no item
is ever an orphan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentdojo.types import ChatAssistantMessage, ChatMessage, MessageContentBlock

from agentsys.base.json_values import to_json_bytes
from agentsys.errors import ConfigError, require_known_name
from agentsys.models import text_tools
from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, text_of
from agentsys.models.providers import openai_wire, wire_parts
from agentsys.models.providers.reply_reader import (
    PLAIN_READING,
    THOUGHT_ANSWER,
    RawCall,
    RawReply,
    Reading,
)
from agentsys.models.providers.sdk_model import PostingModel
from agentsys.models.providers.wire_parts import (
    OPENAI_ITEM_PREFIX,
    PRINTABLE_IDS,
    CallIds,
    as_mapping,
    make_malformed_reply_error,
    read_notes,
)
from agentsys.models.text_tools import TEXT_PROTOCOLS, ProtocolName, ToolRole

ResponsesItem = dict[str, Any]

LED_TO_MESSAGE = "message"
"""What a reasoning item led to where it was no call."""
_ITEM_FIELDS = ("type", "id", "summary", "content", "encrypted_content")


def build_responses_tools(tools: Sequence[ToolSpec]) -> list[ResponsesItem]:
    """The tools on offer. Not strict: the schemas of benchmarks are no closed ones."""
    return [{"type": "function", **tool.json_object, "strict": False} for tool in tools]


def build_responses_items(messages: Sequence[ChatMessage], system_role: str) -> list[ResponsesItem]:
    """The conversation; system messages go under `system_role`."""
    ids = CallIds(PRINTABLE_IDS)
    return [item for message in messages for item in _build_wire_items(message, system_role, ids)]


def _build_wire_items(message: ChatMessage, system_role: str, ids: CallIds) -> Iterator[ResponsesItem]:
    match message["role"]:
        case "system" | "user" as role:
            text = wire_parts.read_visible_text(message)
            yield {"role": system_role if role == "system" else role, "content": text}
        case "tool":
            output = wire_parts.read_result_text(message)
            yield {"type": "function_call_output", "call_id": ids.pick_result_id(message), "output": output}
        case "assistant":
            yield from _build_assistant_items(message, ids)
        case role:
            raise ValueError(f"a message of role {role!r}; known: system, user, assistant, tool")


def _build_assistant_items(message: ChatAssistantMessage, ids: CallIds) -> Iterator[ResponsesItem]:
    opaque = list(read_notes(message["content"] or (), OPENAI_ITEM_PREFIX))
    if text := wire_parts.read_visible_text(message):
        yield from _find_items_before(LED_TO_MESSAGE, opaque)
        phase = next((note["phase"] for note in opaque if note.get("phase")), None)
        yield {"role": "assistant", "content": text, **({"phase": phase} if phase else {})}
    for call in message["tool_calls"] or ():
        call_id = ids.pick_call_id(call)
        yield from _find_items_before(call.id or call_id, opaque)
        # Without the item's own id, by which the API would demand the reasoning that it knows for it.
        arguments = wire_parts.write_arguments_json(call)
        yield {"type": "function_call", "call_id": call_id, "name": call.function, "arguments": arguments}


def _find_items_before(target: str, opaque: Sequence[Mapping[str, Any]]) -> Iterator[ResponsesItem]:
    return (dict(note["item"]) for note in opaque if note.get("before") == target and note.get("item"))


def read_responses_reply(data: object, reading: Reading = PLAIN_READING) -> ChatReply:
    """Read a response; see `Reading.read`."""
    return reading.read(data, "output", wire_parts.read_openai_usage, _read_output)


def _read_output(body: Mapping[str, Any]) -> RawReply:
    output = body.get("output")
    if not isinstance(output, list):
        raise make_malformed_reply_error("the reply has no list of output items")
    items = [as_mapping(item) for item in output]
    parts = [part for item in items if item.get("type") == "message" for part in _list_parts(item)]
    blocks = list(_build_thinking_blocks(items))
    if text := "\n".join(
        filter(None, (_read_item_text(item) for item in items if item.get("type") == "message"))
    ):
        blocks.append({"type": "text", "content": text})
    incomplete = as_mapping(body.get("incomplete_details")).get("reason")
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    sealed = any(item.get("encrypted_content") or not item.get("content") for item in thoughts)
    return RawReply(
        blocks,
        [
            RawCall(
                item.get("name"),
                item.get("arguments", item.get("input")),
                item.get("call_id") or item.get("id"),
            )
            for item in items
            if item.get("type") in _CALL_ITEMS and item.get("output") is None
        ],
        reasons=[incomplete if body.get("status") == "incomplete" and incomplete else body.get("status")],
        refused=any(part.get("refusal") for part in parts) and not any(part.get("text") for part in parts),
        left_in_thoughts="" if sealed else "\n".join(map(_read_summary_text, thoughts)),
    )


_CALL_ITEMS = ("function_call", "custom_tool_call", "mcp_call")
"""vLLM takes some of gpt-oss's calls for those of a server of MCP, which then has none that answers."""


def _list_parts(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = item.get("content")
    return [as_mapping(part) for part in parts] if isinstance(parts, list) else []


def _read_item_text(item: Mapping[str, Any]) -> str:
    if isinstance(item.get("content"), str):
        return str(item["content"])
    texts = [part.get("text") or part.get("refusal") for part in _list_parts(item)]
    return "".join(text for text in texts if isinstance(text, str))


def _build_thinking_blocks(items: Sequence[Mapping[str, Any]]) -> Iterator[MessageContentBlock]:
    """A block for each reasoning item, and one for the phase of a message, which newer models want back."""
    for index, item in enumerate(items):
        if item.get("type") == "reasoning":
            fields = {name: item[name] for name in _ITEM_FIELDS if item.get(name) is not None}
            led_to = next((later for later in items[index + 1 :] if later.get("type") != "reasoning"), {})
            before = led_to.get("call_id") if led_to.get("type") == "function_call" else led_to.get("type")
            # Without its content the provider would look for it in its store, where nothing is.
            usable = fields.get("encrypted_content") or fields.get("content")
            note = {"item": fields, "before": before} if usable else {}
            yield {"type": "thinking", "content": _read_summary_text(item), "id": _encode_note(note)}
        elif item.get("type") == "message" and isinstance(item.get("phase"), str):
            yield {"type": "thinking", "content": "", "id": _encode_note({"phase": item["phase"]})}


def _read_summary_text(item: Mapping[str, Any]) -> str:
    lists = (item.get("summary"), item.get("content"))
    parts = [as_mapping(part).get("text") for listed in lists if isinstance(listed, list) for part in listed]
    return "\n".join(text for text in parts if isinstance(text, str))


def _encode_note(note: Mapping[str, Any]) -> str:
    return OPENAI_ITEM_PREFIX + to_json_bytes(note).decode()


@dataclass(repr=False, eq=False, kw_only=True)
class OpenAIModel(PostingModel):
    """A model behind OpenAI's SDK. Its `base_url` includes `/v1`."""

    api: Literal["chat", "responses"] = "chat"
    """Chat completions, which every server speaks, or OpenAI's newer API, which keeps a model's reasoning
    from one tool call to the next and which `gpt-5.4` and later demand for tools together with reasoning."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What chat completions call the bound on output tokens; newer OpenAI models know only the second."""
    system_role: Literal["system", "developer"] = "system"
    """Role under which system messages go."""
    reasoning_effort: str | None = None
    """`none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`, as far as the model knows it; None: not
    sent, and the model's own default applies."""
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    """Whether the reply's record tells what was thought, with `api: responses`; None: no."""
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    """Field in which a server of chat completions wants a model's thoughts back with its tool calls, empty
    ones too (DeepSeek V4, Kimi, GLM: `reasoning_content`); None: they are read and never sent."""
    strip_think: bool | None = None
    """Whether `<think>` blocks in a text are taken for thoughts, with chat completions: for servers without a
    reasoning parser. None: the block at its beginning, if the question before the first case is answered with one."""

    structured: bool = False
    """Whether the server is to hold replies to their role's form (`ChatRequest.form_schema`) as well."""
    prompt_cache: bool = False
    """Whether requests say which conversation they belong to (`prompt_cache_key`), so that the provider sends
    them where their beginning is in its cache. Replies are the same."""

    tools: Literal["native", "text"] = "native"
    """Whether tools go through the server's own tool calls, or through text: told in the system message, with
    calls read from what the model writes. For servers without a parser for the model, and for models that
    were trained to have results under a role of their own."""
    text_protocol: ProtocolName = "agentdojo"
    """With `tools: text`: `agentdojo` is what AgentDojo's own element for local models sends and reads;
    `agentdojo+` reads every call of a reply and tells the model of one that cannot be read; `llama3` is the
    form that Llama 3 was trained on."""
    tool_role: ToolRole | None = None
    """With `tools: text`, the role of results: `tool`, `user`, `input` (Meta-SecAlign) or `ipython` (Llama
    3); None: the protocol's own."""
    alternate_turns: bool = False
    """With `tools: text`, whether neighbours of one role, as the results of two calls, are sent as one message:
    for chat templates that refuse others."""

    def __post_init__(self) -> None:
        if self.tools == "text" and self.api == "responses":
            raise ConfigError(f"Model '{self.name}': tools: text goes with api: chat.")
        require_known_name("text_protocol", self.text_protocol, TEXT_PROTOCOLS)
        super().__post_init__()
        if self.reasoning_effort is not None and self.api == "chat":
            self._fixed["reasoning_effort"] = self.reasoning_effort

    @property
    def _path(self) -> str:
        return "/responses" if self.api == "responses" else "/chat/completions"

    @property
    def _names_tools(self) -> bool:
        return self.tools == "native"

    def _make_client(self) -> Any:
        import openai  # 0.9 s of CPU: only where a model is really built

        return self._make_sdk(openai.OpenAI, openai.DefaultHttpxClient, "https://api.openai.com/v1")

    def _read_reply(self, answer: bytes, reading: Reading) -> ChatReply:
        if self.api == "responses":
            return read_responses_reply(answer, reading)
        reply = openai_wire.read_openai_reply(answer, reading, strip_think=bool(self.strip_think))
        if self.tools == "native" or THOUGHT_ANSWER in reply.odd:
            return reply
        protocol = TEXT_PROTOCOLS[self.text_protocol]
        return replace(reply, message=text_tools.with_parsed_calls(reply.message, reading.request, protocol))

    def _build_body(self, request: ChatRequest) -> bytes:
        body = (
            self._build_responses_body(request)
            if self.api == "responses"
            else self._build_completion_body(request)
        )
        if self.prompt_cache:
            body["prompt_cache_key"] = _compute_conversation_key(request)
        body.update(self._fixed)
        # Mistral's API, for one, refuses the `seed` of tools through text: `extra_body: {seed: null}`.
        body = {name: value for name, value in body.items() if value is not None}
        if request.tools and self.tools == "native":
            convert = build_responses_tools if self.api == "responses" else openai_wire.build_openai_tools
            body |= {"tool_choice": request.tool_choice, "tools": convert(request.tools)}
        return to_json_bytes(body)

    def _build_completion_body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model_id,
            "messages": openai_wire.build_openai_messages(
                request.messages, self.system_role, self.reasoning_field
            ),
            **self._build_temperature_field(request),
        }
        if self.tools == "text":
            protocol = TEXT_PROTOCOLS[self.text_protocol]
            body["messages"] = text_tools.build_text_tool_messages(
                request, protocol, self.tool_role, alternate=self.alternate_turns
            )
            body["seed"] = text_tools.compute_request_seed(body["messages"])
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body[self.max_tokens_field] = max_tokens
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.logprobs}
        if (schema := request.schema_to_send(structured=self.structured)) is not None:
            body["response_format"] = openai_wire.build_response_format(schema)
        return body

    def _build_responses_body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model_id,
            "input": build_responses_items(request.messages, self.system_role),
            "store": False,
            **self._build_temperature_field(request),
        }
        if self.reasoning_effort is not None:
            asked = {"effort": self.reasoning_effort, "summary": self.reasoning_summary}
            body["reasoning"] = {name: value for name, value in asked.items() if value is not None}
            # Refused by models that do not reason; without it nothing could be sent back.
            body["include"] = ["reasoning.encrypted_content"]
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body["max_output_tokens"] = max_tokens
        if (schema := request.schema_to_send(structured=self.structured)) is not None:
            named = openai_wire.build_response_format(schema)["json_schema"]
            body["text"] = {"format": {"type": "json_schema", **named}}
        return body


def _compute_conversation_key(request: ChatRequest) -> str:
    """Digest of a conversation's opening and of who asks; 32 hex digits."""
    texts = [text_of(message) for message in request.messages]
    opening = next((n for n, message in enumerate(request.messages) if message["role"] == "user"), 0)
    parts = [request.role, *texts[: opening + 1], *(tool.name for tool in request.tools)]
    return hashlib.sha256(to_json_bytes(parts)).hexdigest()[:32]
