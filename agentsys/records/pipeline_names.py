"""`PipelineNames`: which model and which defense the names of other people's pipelines tell of.

AgentDojo's form has no fields for them: a pipeline is called `<model>-<defense>`, its folder likewise. Where a model's
name ends can be told by the pipelines beside it, by a known defense's ending, or by words that only models' names
have (dates, sizes, variants). What none of these tells stays open, and is said.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from glob import escape
from typing import NamedTuple

from agentsys.records.case_row import IN_PIPELINE_NAME, UNRECORDED

NO_DEFENSE = "none"

_DEFENSES = {
    "tool_filter": "tool_filter",
    "repeat_user_prompt": "prompt_sandwiching",
    # AgentDojo's own wording, which `defense=spotlighting` does not use.
    "spotlighting_with_delimiting": "spotlighting_compat",
    "transformers_pi_detector": "protectai",
    "piguard_detector": "piguard",
    "prompt_guard_2_detector": "prompt_guard_2",
    "melon": "melon",
    "drift": "drift",
    "progent": "progent",
    "camel": "camel",
}
"""What agentdojo 0.1.35, AgentDyn and MELON's fork append to a pipeline's name -> our name of the defense."""

_ENDINGS = {
    **_DEFENSES,
    **{name: name for name in _DEFENSES.values()},
    **dict.fromkeys(("none", "no_defense"), NO_DEFENSE),
}
"""Our names as well: folders of re-scored records bear them."""

_KNOWN_ENDING = re.compile(
    rf"(?P<model>.+)[-+_@](?P<defense>{'|'.join(_ENDINGS).replace('_', '[-_]')})", re.DOTALL | re.IGNORECASE
)
_VARIED_ENDING = re.compile(
    rf"(?P<model>.+?)[-+_@](?P<ending>(?:{'|'.join(_DEFENSES).replace('_', '[-_]')})[-+_@]\w.*)",
    re.DOTALL | re.IGNORECASE,
)
"""A known defense's ending with more behind it (`-melon_at`)."""

_DEFENSE_FIRST = re.compile(rf"(?:{'|'.join(_DEFENSES).replace('_', '[-_]')})(?:[-+_@]|$)", re.IGNORECASE)

_FAMILY = (
    "aya|bard|baichuan|bloom|chatglm|claude|codestral|cohere|command|dbrx|deepseek|doubao|devstral|ernie|exaone|falcon|"
    "functionary|gemini|gemma|glm|gpt|granite|grok|hermes|hunyuan|internlm|jamba|kimi|lfm|llama|local|magistral|"
    "mimo|minimax|minicpm|ministral|mistral|mixtral|moonshot|nemotron|nova|olmo|openchat|palm|phi|pixtral|qwen|"
    "qwq|secalign|seed|smollm|solar|sonar|starling|starcoder|step|tulu|vicuna|wizardlm|xlam|yi|zephyr"
)
_VARIANT = (
    "a|air|alpha|base|beta|chat|code|coder|codex|deep|distill|exp|experimental|fast|flash|free|haiku|hf|high|instant|"
    "instruct|it|large|latest|lite|long|low|maverick|max|medium|micro|mini|moe|nano|next|non|omni|online|opus|"
    "oss|plus|premier|preview|pro|r|reasoner|reasoning|research|rl|scout|search|dpo|sft|small|sonnet|super|"
    "tiny|thinking|turbo|ultra|vision|vl|xl|awq|gguf|gptq|int4|int8|fp4|fp8|fp16|bf16|nvfp4|mxfp4|bnb|4bit|8bit"
)
_NUMBER = r"[a-z]?\d+(?:[.:]\d+)*[a-z]{0,2}|\d+x\d+[a-z]|v\d[\w.:]*"
"""Versions, dates, sizes and contexts: `4o`, `v1:0`, `70b`, `a22b`, `8x7b`, `2024`, `001`, `128k`."""
_FAMILY_WORD = re.compile(rf"(?:{_FAMILY})(?:\d[\d.]*[a-z]?)?(?::[\w.]+)?", re.IGNORECASE)
_MODEL_WORD = re.compile(rf"{_FAMILY_WORD.pattern}|(?:{_VARIANT})|{_NUMBER}", re.IGNORECASE)
"""Words that belong to a model's name wherever they follow it."""

_SIGN = "[-+@~,=( ]"
_SEPARATOR = rf"{_SIGN}|(?:(?<=\d)|(?<=\d[a-z]))[_.:](?=_*[a-zA-Z]{{2}})"
_DATE = re.compile(r"20\d\d-?\d\d-?\d\d$")

_VENDORS = (
    "01-ai|ai21|alibaba|allenai|amazon|anthropic|azure|bedrock|bytedance|cohere|cohereforai|databricks|deepseek|"
    "deepseek-ai|facebook|fireworks|fireworks_ai|google|groq|hosted_vllm|huggingface|ibm|ibm-granite|meta|meta-llama|"
    "microsoft|minimax|minimaxai|mistral|mistralai|moonshotai|nousresearch|nvidia|ollama|openai|openrouter|perplexity|"
    "qwen|tencent|tiiuae|together|together_ai|togethercomputer|us|vertex|vertex_ai|vllm|x-ai|xai|xiaomi|z-ai|zai-org|"
    "zhipu|zhipuai"
)
_VENDOR_PREFIX = re.compile(rf"(?:{_VENDORS})[_.:]+", re.IGNORECASE)
_JOINED_VENDOR = re.compile(r"(?:anthropic|google|meta|microsoft|nvidia|openai)-(?=.)", re.IGNORECASE)
"""Vendors that also stand before a hyphen, and whose own names no model bears."""


class NameParts(NamedTuple):
    """A pipeline's name, taken apart."""

    model: str
    defense: str
    """Our name of a known defense; another one's as it is spelled; `none`; `unrecorded (ENDING)` while open."""
    ending: str | None = None
    """What cannot be said to be of the model or of a defense; None where nothing is open."""


@lru_cache(maxsize=65536)
def make_model_key(name: str, vendors: frozenset[str] = frozenset()) -> str:
    """Fold a model's name: letter case, separators and a vendor before the name play no part.

    Args:
        name: E.g. `meta-llama/Llama-3.3-70B-Instruct` or `meta-llama_llama-3.3-70b-instruct`.
        vendors: Further vendors, in the same form as keys.
    """
    return _normalize(name[_measure_vendor(name, vendors) :])


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "-", name.lower()) if name.isascii() else name.lower()


def _measure_vendor(name: str, vendors: frozenset[str]) -> int:
    """Characters of a name that only say who serves the model."""
    cut = name.rfind("/") + 1
    while (found := _VENDOR_PREFIX.match(name, cut)) and found.end() < len(name):
        cut = found.end()
    rest = _normalize(name[cut:])
    # After a hyphen it is a part of the name: `qwen-2.5` of `qwen/qwen-2.5`.
    begun = (one for one in vendors if rest.startswith(f"{one}-") and name[cut + len(one)] != "-")
    cut += max((len(one) + 1 for one in begun if len(one) + 1 < len(rest)), default=0)
    joined = _JOINED_VENDOR.match(name, cut)
    return joined.end() if joined else cut


def _split_words(part: str, name: str) -> list[str]:
    """Words of a part of a name; `_` joins words where other signs part them, but for those behind a number."""
    return re.split(_SEPARATOR if re.search(_SIGN, name) else "_", part)


def _is_family_behind_date(words: Sequence[str], at: int) -> bool:
    """True if a word names another family though the model's name ended in its date (`2031-01-01-solar`)."""
    return bool(_FAMILY_WORD.fullmatch(words[at]) and _DATE.search("-".join(words[:at])))


def _count_model_words(words: Sequence[str], begun: int) -> int:
    """How many words, all known up to `begun`, are of the model's name; a family's before an unknown one is not."""
    end = begun
    while end < len(words) and _MODEL_WORD.fullmatch(words[end]) and not _is_family_behind_date(words, end):
        end += 1
    while begun < end < len(words) and _FAMILY_WORD.fullmatch(words[end - 1]):
        end -= 1
    return end


def _strip_known_ending(name: str) -> str:
    found = _KNOWN_ENDING.fullmatch(name)
    return name if found is None else found["model"]


class StoredName(NamedTuple):
    """A pipeline's name, as a file states it."""

    name: str
    of_form: str | None
    """The defense that the file's form proves (DRIFT's); None: the names alone tell."""


def join_pipeline_name(model: str, defense: str) -> StoredName:
    """The pipeline's name behind a row's model and defense, as `split_alone` gives them."""
    if defense in (NO_DEFENSE, IN_PIPELINE_NAME):
        return StoredName(model, None)
    if defense in _ENDINGS and defense != _DRIFT:
        return StoredName(f"{model}-{defense}", None)
    return StoredName(model, defense)


_DRIFT = "drift"


@lru_cache(maxsize=4096)
def split_alone(name: str) -> NameParts:
    """Take a name apart that stands alone: by a known defense's ending, else by the words of models' names."""
    if found := _VARIED_ENDING.fullmatch(name):
        return _leave_open(found["model"], found["ending"])
    if found := _KNOWN_ENDING.fullmatch(name):
        return NameParts(found["model"], _ENDINGS[found["defense"].lower().replace("-", "_")])
    cut = _measure_vendor(name, frozenset())
    core = name[cut:]
    words = _split_words(core, core)
    known = [bool(_MODEL_WORD.fullmatch(word)) for word in words]
    if _DEFENSE_FIRST.match(name):
        return NameParts(name, UNRECORDED, "")
    if len(words) == 1:
        return NameParts(name, NO_DEFENSE)
    # Unknown words before the known ones are the family's own name; before another family's they may be a defense.
    begun = known.index(True) if any(known) else len(words)
    if begun == len(words) or (begun and _FAMILY_WORD.fullmatch(words[begun])):
        return NameParts(name, UNRECORDED, "")
    end = _count_model_words(words, begun + 1)
    if end == len(words) or _DATE.search(_normalize(core)):  # a date ends a model's name
        return NameParts(name, NO_DEFENSE)
    length = sum(map(len, words[:end])) + end
    return _leave_open(name[: cut + length - 1], core[length:])


def _leave_open(model: str, ending: str) -> NameParts:
    ending = ending.lstrip("-_") or ending
    return NameParts(model, f"{UNRECORDED} ({ending})", ending)


class PipelineNames:
    """The names of pipelines that were read together, each of which may tell where another one's model ends."""

    def __init__(self, pairs: Collection[tuple[str | None, str]], models: Collection[str] = ()) -> None:
        """Find the models among some names.

        Args:
            pairs: Names of a pipeline's folder (None: there is none) and in the files there.
            models: Names of models that are known besides.
        """
        listed = sorted({name for pair in pairs for name in pair if name is not None} | set(models))
        self._vendors = frozenset(_find_vendors(listed, pairs))
        names = {self._key(name): name for name in listed}
        strong = {self._key(name) for name in models}
        strong |= {self._key(bare) for name in listed if (bare := _strip_known_ending(name)) != name}
        self._models: set[str] = set()
        for key in sorted(strong | names.keys(), key=lambda key: (len(key), key)):
            if key in strong or self._is_model(key, names[key], names):
                known = self._find_model(key)
                if known is None or all(map(_MODEL_WORD.fullmatch, key[len(known) + 1 :].split("-"))):
                    self._models.add(key)
        self.spellings = self._find_spellings(self.resolve(*pair).model for pair in sorted(pairs, key=str))
        """Spelling of a model -> the one that most pipelines have of it; only those that are another one."""

    def _key(self, name: str) -> str:
        return make_model_key(name, self._vendors)

    @staticmethod
    def _is_model(key: str, name: str, keys: Iterable[str]) -> bool:
        """True if a name without a known ending may be a model's: by its words, or because others begin with it."""
        parts = split_alone(name)
        followed = any(other.startswith(f"{key}-") for other in keys)
        return parts.ending is None or (parts.ending == "" and followed)

    def _find_model(self, key: str) -> str | None:
        """The longest known model that a name begins with."""
        ends = [at for at, char in enumerate(key) if char == "-"]
        return next((key[:at] for at in reversed(ends) if key[:at] in self._models), None)

    def split(self, name: str) -> NameParts:
        """Take one of the names apart."""
        key = self._key(name)
        if key in self._models:
            return NameParts(name, NO_DEFENSE)
        known = self._find_model(key)
        if known is None:
            return split_alone(name)
        end = len(name) - len(key) + len(known)
        model, rest = name[:end], name[end + 1 :]
        words = _split_words(rest, name[_measure_vendor(name, self._vendors) :])
        before = _normalize(model).split("-")
        count = _count_model_words([*before, *words], len(before)) - len(before)
        if count == len(words):
            return NameParts(name, NO_DEFENSE)
        if count:  # a variant that stands nowhere by itself
            length = sum(map(len, words[:count])) + count
            return _leave_open(f"{model}{name[end]}{rest[: length - 1]}", rest[length:])
        return NameParts(model, _ENDINGS.get(rest.lower().replace("-", "_"), rest.lstrip("-_ ") or rest))

    def resolve(self, folder: str | None, recorded: str, of_form: str | None = None) -> NameParts:
        """Settle what a folder and the files in it say together: where they disagree, the folder decides.

        Args:
            folder: The pipeline's folder; None: the file lies in none that has a pipeline's name.
            recorded: The pipeline's name in the file.
            of_form: The defense that the file's form proves (DRIFT's); None: the names alone tell.
        """
        stored = self.split(recorded) if of_form is None else NameParts(self.split(recorded).model, of_form)
        if folder is None:
            return stored
        told = self.split(folder)
        same = self._key(told.model) == self._key(stored.model)
        model = stored.model if same else told.model
        is_silent = told.defense == NO_DEFENSE or (
            told.ending is not None and stored.defense != NO_DEFENSE and stored.ending is None
        )
        # A part of DRIFT, say, in a folder that is called as the whole, or as nobody's defense is.
        is_less_exact = of_form is not None and (
            stored.defense.startswith(f"{told.defense}_") or told.defense not in _ENDINGS.values()
        )
        if is_silent or is_less_exact:
            return NameParts(model, stored.defense, stored.ending)
        return NameParts(model, told.defense, told.ending)

    def _find_spellings(self, models: Iterable[str]) -> dict[str, str]:
        counted = Counter(models)
        by_key: dict[str, list[str]] = {}
        for model in counted:
            by_key.setdefault(self._key(model), []).append(model)
        return {
            model: best
            for some in by_key.values()
            for best in [max(some, key=lambda one: (counted[one], len(one), one))]
            for model in some
            if model != best
        }


def _find_vendors(names: Iterable[str], pairs: Iterable[tuple[str | None, str]]) -> Iterator[str]:
    """Prefixes that some spelling shows to be a vendor's: before a slash, or in the folder's name alone."""
    for name in names:
        if "/" in name:
            yield _normalize(name.rpartition("/")[0])
    for folder, recorded in pairs:
        if folder is None:
            continue
        whole, bare = _normalize(_strip_known_ending(folder)), _normalize(_strip_known_ending(recorded))
        if whole.endswith(f"-{bare}") and any(map(_MODEL_WORD.fullmatch, _split_words(recorded, recorded))):
            yield whole[: -len(bare) - 1]


def describe_open_name(folder: str, parts: NameParts) -> str:
    """Say that a pipeline's name was not understood, with the line of a file of names that settles it."""
    name = folder.rpartition("/")[2]
    what = f"'{parts.ending or name}' may be of the model or a defense"
    said = {"model": parts.model, "defense": parts.ending or NO_DEFENSE}
    line = f"{json.dumps(escape(name), ensure_ascii=False)}: {json.dumps(said, ensure_ascii=False)}"
    return (
        f"{folder}: {what}, and no pipeline beside it tells; counted as {parts.model} with {parts.defense}."
        f" Say it in a file for --names: {line}"
    )
