"""Forms in which models write a tool call as text, a row for each family, with what makes a server read it.

A server without a tool-call parser, or with another family's, passes the call on as the model wrote it. Sources of
the forms: the models' chat templates and the parsers of vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

_TOOL = "\ua66e"
"""A letter that no text needs: put before each name of a tool on offer, in place of its name space."""


class CallForm(NamedTuple):
    """One family's form."""

    family: str
    """Models that write it."""
    pattern: str
    """Regular expression of how a call begins, with `§` for a tool on offer and `¤` for how it begins; what
    prose may hold has a `§`."""
    vllm: str = ""
    """What vLLM's `--tool-call-parser` takes for it; empty where it has none."""
    sglang: str = ""
    """The same of SGLang's."""

    @property
    def mend(self) -> str:
        """How to start a server so that it reads these calls."""
        return (
            f"vLLM: --enable-auto-tool-choice --tool-call-parser {self.vllm or 'NAME'}; "
            f"SGLang: --tool-call-parser {self.sglang or 'NAME'}; llama.cpp: --jinja"
        )


_LABEL = r"(?:^|\n)[^\w\n]{0,5}"
"""Begins a line, whatever marks it has."""
CALL_FORMS = (
    CallForm("DeepSeek V3.2 and V4", r"[|｜]\s?DSML\s?[|｜]", "deepseek_v32 or deepseek_v4", "deepseekv32"),
    CallForm("Step-3", r"<steptml:|<｜tool_calls?_begin｜>", "step3", "step3"),
    CallForm("Kimi K2", r"<\|tool_calls?_(?:section_|argument_)?begin\|>|§:\d+\s*\{", "kimi_k2", "kimi_k2"),
    CallForm("Kimi K3", r"<\|open\|>\s*(?:tools|call)\b", "kimi_k3", "kimi_k3"),
    CallForm(
        "DeepSeek V3 and R1",
        r"[|｜]tool[▁_ ](?:calls?[▁_ ]begin|sep)[|｜]>",
        *("deepseek_v3 or deepseek_v31", "deepseekv3"),
    ),
    CallForm(
        "gpt-oss",
        r"(?:\bto|(?:commentary|analysis)\s*to)=[\w.-]+\s*(?:<\||\{|(?:commentary|analysis|code|json)\b)"
        r"|<\|channel\|>\s*(?:commentary|analysis)\s+to=",
        *("openai", "gpt-oss"),
    ),
    CallForm("GLM 4.5 to 4.7", r"<arg_key[:>]", "glm45 or glm47", "glm45 or glm47"),
    CallForm("Seed-OSS", r"<seed:tool_call>", "seed_oss"),
    CallForm("MiniMax M2 and M3", r"<minimax:tool_call>|\]<\]minimax\[>\[", "minimax_m2", "minimax-m2"),
    CallForm("LongCat", r"<longcat_tool_call>", "longcat"),
    CallForm(
        "Qwen3-Coder, MiMo and Nemotron 3",
        r"<function\s*=\s*[\w.-]+>\s*<parameter\s*=|<tool_call>\s*<function\b",
        *("qwen3_coder", "qwen3_coder"),
    ),
    CallForm("InternLM", r"<\|action_start\|>", "internlm", "interns1"),
    CallForm("Llama 3.1 in tags", r"<function\s*=\s*[\w.-]+>"),
    CallForm(
        "Llama 3", r"<\|python_tag\|>|\{\s*\"name\"\s*:\s*\"§\"\s*,\s*\"parameters\"", "llama3_json", "llama3"
    ),
    CallForm("Llama 4", r"<\|python_start\|>", "llama4_pythonic", "pythonic"),
    CallForm("LFM2", r"<\|tool_call_start\|>", "lfm2", "lfm2"),
    CallForm(
        "Mistral",
        r"\[TOOL_CALLS\]|\[ARGS\]\s*\{|(?:^|\s)§(?:\[CALL_ID\]\S*)?\{\s*[\"}]",
        "mistral",
        "mistral",
    ),
    CallForm("FunctionGemma", r"<start_function_call>", "functiongemma"),
    CallForm("Gemma 4", r"<\|tool_call>|\bcall:§\s*\{", "gemma4", "gemma4"),
    CallForm("Gemma 3", r"```\s*tool_(?:code|calls?)\b|<tool_code>", "pythonic", "pythonic"),
    CallForm("OLMo 3", r"<function_calls>\s*\[?\w[\w.]*\(", "olmo3", "pythonic"),
    CallForm(
        "Cohere Command",
        r"<\|?START_(?:ACTION|TOOL_CALL)\|?>|\"tool_name\"\s*:\s*\"§\"",
        *("cohere_command3", "cohere_command4"),
    ),
    CallForm("Apertus", r"<\|tools_prefix\|>|\[\s*\{\s*\"§\"\s*:\s*[{\[]", "apertus", "apertus2509"),
    CallForm("GigaChat", r"<\|function_call\|>|function call<\|role_sep\|>", "gigachat3", "gigachat3"),
    CallForm("Granite 3 and Phi-4 mini", r"<\|/?tool_call\|>|\bfunctools\s*\[", "granite or phi4_mini_json"),
    CallForm("Granite 20B", r"<function_call>\s*\{", "granite-20b-fc"),
    CallForm("Nemotron", r"<TOOLCALL>"),
    CallForm(
        "Jamba, Hunyuan and Apriel", r"<tool_calls(?::\w+)?>\s*[\[{<]", "jamba or hunyuan_a13b", "hunyuan"
    ),
    CallForm(
        "Hermes, Qwen and many others",
        r"<tool_call(?::\w+)?>\s*(?:[\[{<]|§|[\w.-]+\s*[({\n])|\}\s*</tool_call>",
        *("hermes", "qwen25"),
    ),
    CallForm("Functionary", r"<\|recipient\|>\s*(?!all\b)\w|>>>\s?§"),
    CallForm("Solar", r"<\|tool_calls?:\w+\|>", "solar_open2"),
    CallForm("ChatGLM", r"§\s{0,3}```python\s*tool_call\("),
    CallForm("PLaMo", r"<\|plamo:begin_tool_"),
    CallForm("LM Studio", r"\[TOOL_REQUEST\]"),
    CallForm("Qwen 1", r"✿FUNCTION✿"),
    CallForm(
        "ReAct and Command R",
        rf"{_LABEL}(?:Action|Tool|Function)(?: Name| [Cc]all)?[^\w\n]{{1,6}}"
        r"(?:§[^\w\n({\[]{0,5}(?:[\n({\[]|\Z)|\n?```(?:json)?\s*\[?\s*\{)",
    ),
    CallForm("tags named by tools", r"<(?:\w{1,20}:)?§(?:\s{0,3}/?>|\s{1,3}\w+\s?=)"),
    CallForm(
        "XML",
        r"<(?:\w{1,20}:)?(?:invoke|function_calls?|tool_use|use_tool|tool_name|tool_call|tool|function|name|action)\b"
        r"[^<>\n¤]{0,40}(?:[\"'=]|>\s*(?:<(?:\w{1,20}:)?(?:name|tool_name|function|invoke)\b[^<>¤]{0,20}>?)?\s*)§",
    ),
    CallForm("control tokens before a tool", r"<[|｜][^\s<>]{1,50}>[^.!?<>¤]{0,24}§"),
    CallForm("labels before a tool", r"\[[A-Z]{2,20}(?:_[A-Z]{1,20})+\][^\w¤]{0,5}(?:\w{1,20}\W{1,5})?§"),
    CallForm(
        "JSON",
        r"[\"']\w{1,30}[\"']\s?:\s?[\"']§[\"'](?=.{0,2000}?[\"'](?:arg\w*|param\w*|kwargs|\w*input\w*)[\"']\s?:)"
        r"|[\"'](?:arg\w*|param\w*|kwargs|\w*input\w*)[\"']\s?:(?=.{0,4000}?[\"']\w{1,30}[\"']\s?:\s?[\"']§[\"'])"
        r"|\A(?:```\w*)?[\[{\s]*[\"']\w{1,30}[\"']\s?:\s?[\"']§[\"']\s*[}\]]"
        r"|\{\s*[\"']§[\"']\s?:\s?\{",
    ),
    CallForm(
        "name and JSON",
        rf"{_LABEL}§(?::\d+)?(?:\s?<\|[^<>\n]*\|>|\s?json|\s?[-=]?>|:)?\s*\{{\s*[\"'}}]",
        "",
        "glm",
    ),
    CallForm(
        "name and arguments",
        rf"{_LABEL}\w{{0,10}}(?:name|tool|function|action)\w{{0,10}}[^\w\n]{{1,5}}§\W{{0,5}}\n\W{{0,8}}(?:arg|param|\w*\s?input)",
    ),
    CallForm(
        "Python",
        r"(?:^|\n|;|```\w*|<code>)[ \t`]{0,40}+(?:[\w, ]{1,40}[=:] ?)?(?:await )?(?:print\()?\[?\s?§"
        r"\((?:[ \t]*\n|[^\n]*\)[\]),;` \t]*+(?:\n(?!</function_call>)|\Z|</code>))"
        r"|\A\[?\s?§\(.*\)\s*+\]?\Z",
        *("pythonic", "pythonic"),
    ),
)
"""The forms, those of one family before those that many share. tests/corpus/wires holds replies in each."""
_COMPILED = [
    (form, re.compile(form.pattern.replace("¤", _TOOL).replace("§", rf"{_TOOL}[\w.-]*\w"), re.DOTALL))
    for form in CALL_FORMS
]
_HINT = re.compile(r"[<\[|｜✿]|\bto=|```|functools")
"""What every form holds but for a tool's name; an answer without either is not looked at more closely."""
_SPACES = r"(?:functions|default_api|api|tools?)[.:]"
_LOST_IN_COPIES = re.compile(rf"^> ?|\\[nrt]|[\s\"'\\`*{_TOOL}]|{_SPACES}", re.MULTILINE)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_PASSAGE = 80
"""Characters behind the beginning of a call, on its line, that must stand in a tool's result too if it is a copy."""


def find_call_form(text: str, tools: Collection[str], copied: Iterable[str] = ()) -> CallForm | None:
    """The form of the first call in a text; None if it holds none.

    Args:
        text: What a model said.
        tools: Names of the tools on offer.
        copied: Texts that it may have copied from, e.g. results of tools: what stands there is no call.
    """
    if not (_HINT.search(text) or any(name in text for name in tools)):
        return None
    names = _compile_names(frozenset(tools))
    said = names.sub(rf"{_TOOL}\1", text.strip().replace('\\"', '"').replace(_TOOL, ""))
    shown: list[str] | None = None
    for form, pattern in _COMPILED:
        for found in pattern.finditer(said):
            shown = [_squeeze(one) for one in copied] if shown is None else shown
            end = found.start() + len(found[0].rstrip())
            passage = found[0].rstrip() + said[end : end + _PASSAGE].partition("\n")[0]
            passage = _squeeze(_cut_call(passage))
            if not any(passage in one for one in shown):
                return form
    return None


@lru_cache(maxsize=256)
def _compile_names(tools: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(tools, key=lambda name: (-len(name), name)))) or "(?!)"
    return re.compile(rf"(?<!\w)(?:{_SPACES})?({names})(?![\w-])")


def _squeeze(text: str) -> str:
    """A text without what is lost, or comes in, where it is copied or written as JSON, YAML or HTML."""
    plain = _ESCAPED.sub(lambda met: chr(int(met[1], 16)), html.unescape(text))
    return _LOST_IN_COPIES.sub("", plain)


def _cut_call(text: str) -> str:
    """A text up to where the call ends with which it begins: at the bracket that closes its first one."""
    depth = opened = 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        opened = max(opened, depth)
        if depth < 0 or (opened and not depth):
            return text[:at]
    return text
