"""`Guard`: the middleware as a library, and `GuardSession`, one conversation that it watches over.

`ContagionMonitor`, the third layer, compares what an agent passes on with the untrusted texts that it has read:
copied and paraphrased sentences count, and more where they give instructions; so do texts of many stages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from agentsys_plugins.vectors.middleware.guard_settings import (
    GuardLayer,
    GuardSettings,
    Handling,
    RiskFinding,
    combine_weights,
    load_optional,
    require_middleware_packages,
)
from agentsys_plugins.vectors.middleware.normalization import normalize_text
from agentsys_plugins.vectors.middleware.risk_patterns import (
    RiskCategory,
    find_sightings,
    remove_instructions,
)
from agentsys_plugins.vectors.middleware.tool_policy import (
    ArgumentRule,
    ToolPolicy,
    find_violations,
    iterate_texts,
    load_tool_policy,
)

COPIED_WORDS = 8
"""Fewest words in a row that count as copied."""
_TOKEN = re.compile(r"\w+", re.UNICODE)


_MOST_CHARACTERS = 20_000
"""Characters of each text that are compared."""


def compute_similarity(output: str, inputs: Sequence[str]) -> float:
    """Return the cosine, 0.0 to 1.0, of an output and the most similar input; 0.0 without any."""
    texts = [output[:_MOST_CHARACTERS], *(text[:_MOST_CHARACTERS] for text in inputs)]
    if len(texts) < 2:
        return 0.0
    vectorizer = load_optional("sklearn.feature_extraction.text").TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
    )
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # no words at all
        return 0.0
    return float((vectors[1:] @ vectors[0].T).toarray().max())


LAYER = "contagion"
ALIKE = 0.6
"""Cosine from which an output counts as a paraphrase of an input."""
_COPIED = 0.1
_COPIED_INSTRUCTION = 0.6
_PARAPHRASED = 0.1
_PARAPHRASED_INSTRUCTION = 0.4
_STAGES = 3
_MANY_STAGES = 0.1
_MANY_STAGES_INSTRUCTION = 0.35
_GIVES_INSTRUCTIONS = 3.0
"""Score from which a text read before counts as one that gives instructions."""
_MOST_COMPARED = 16
"""Suspicious inputs that an output is compared with by TF-IDF, the newest ones."""
_SHORTEST = 24
"""Characters; shorter outputs carry no instruction."""
_SENTENCE = re.compile(r"[^.!?\n]+")
FEWEST_WORDS = 5
"""Words of a sentence that is followed; shorter ones recur by chance."""


@dataclass
class ContagionMonitor:
    """State of one conversation."""

    suspicious: list[str] = field(default_factory=list)
    """Untrusted texts that give instructions."""
    _grams: set[tuple[str, ...]] = field(default_factory=set)
    """The runs of words of everything untrusted that was read so far."""
    _stages: dict[str, list[str]] = field(default_factory=dict)
    """Words of a sentence, in small letters -> the agents and stages that it was at, in order, each once."""
    _pending: list[tuple[str, str]] = field(default_factory=list)
    """Texts and stages that came in since something went out: conversations read more than they write."""

    def record_input(self, text: str, stage: str) -> None:
        """Note an untrusted text before an agent reads it."""
        if len(text) >= _SHORTEST:
            self._pending.append((text, stage))

    def _scan_pending(self) -> None:
        for text, stage in self._pending:
            words = [word.casefold() for word in _TOKEN.findall(text)]
            self._grams.update(zip(*(words[offset:] for offset in range(COPIED_WORDS)), strict=False))
            self._record_stage(text, stage)
            if combine_weights(seen.weight for seen in find_sightings(text)) >= _GIVES_INSTRUCTIONS:
                self.suspicious.append(text)
        self._pending.clear()

    def check_output(self, text: str, stage: str) -> list[RiskFinding]:
        """Return findings against passing on an agent's text; `stage` is e.g. `argument of send_email`."""
        if len(text) < _SHORTEST:
            return []
        self._scan_pending()
        instructs = bool(find_sightings(text))
        findings = [seen.as_finding(LAYER) for seen in find_sightings(text)]
        findings = [finding for finding in findings if finding.category is RiskCategory.PROPAGATION]
        findings += [*self._find_copies(text), *self._find_paraphrases(text, instructs)]
        way = self._record_stage(text, stage)
        if len(way) >= _STAGES:
            weight = _MANY_STAGES_INSTRUCTION if instructs else _MANY_STAGES
            findings.append(_make_propagation_finding("many_stages", weight, " -> ".join(way)))
        return findings

    def _record_stage(self, text: str, stage: str) -> list[str]:
        """Note that a text is at a stage; the longest way that one of its sentences has come so far."""
        longest: list[str] = []
        for sentence in _SENTENCE.findall(text):
            words = _TOKEN.findall(sentence.casefold())
            if len(words) < FEWEST_WORDS:
                continue
            way = self._stages.setdefault(" ".join(words), [])
            if stage not in way:
                way.append(stage)
            longest = max(longest, way, key=len)
        return longest

    def _find_copied_runs(self, output: str) -> tuple[float, list[str]]:
        """Return the share of an output's words inside runs copied from inputs, and these runs."""
        tokens = list(_TOKEN.finditer(output))
        words = [token.group().casefold() for token in tokens]
        inside = [False] * len(words)
        for start in range(len(words) - COPIED_WORDS + 1):
            if tuple(words[start : start + COPIED_WORDS]) in self._grams:
                inside[start : start + COPIED_WORDS] = [True] * COPIED_WORDS
        runs = []
        for copied, group in groupby(zip(inside, tokens, strict=True), key=itemgetter(0)):
            if copied:
                run = [token for _, token in group]
                runs.append(output[run[0].start() : run[-1].end()])
        return (sum(inside) / len(inside) if inside else 0.0), runs

    def _find_copies(self, text: str) -> list[RiskFinding]:
        share, runs = self._find_copied_runs(text)
        if not runs:
            return []
        instructing = [run for run in runs if find_sightings(run)]
        weight = _COPIED_INSTRUCTION if instructing else _COPIED
        kind = "copied_instruction" if instructing else "copied"
        excerpt = f"{share:.0%} copied: {(instructing or runs)[0]}"
        return [_make_propagation_finding(kind, weight, excerpt)]

    def _find_paraphrases(self, text: str, instructs: bool) -> list[RiskFinding]:
        cosine = compute_similarity(text, self.suspicious[-_MOST_COMPARED:])
        if cosine < ALIKE:
            return []
        weight = _PARAPHRASED_INSTRUCTION if instructs else _PARAPHRASED
        kind = "paraphrased_instruction" if instructs else "paraphrased"
        return [_make_propagation_finding(kind, weight, f"cosine {cosine:.2f} with a text read before")]


def _make_propagation_finding(kind: str, weight: float, excerpt: str) -> RiskFinding:
    return RiskFinding(LAYER, kind, RiskCategory.PROPAGATION, weight, excerpt)


_KEPT = 4096
"""Texts whose screening is remembered; agents read the same mails again and again."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Screened:
    """The outcome of screening one text."""

    original: str
    """Untrusted; kept so that what was held back can be recovered."""
    text: str
    """The text to read instead; the same object if nothing was found."""
    handling: Handling
    score: float
    """Risk, 0 to 10."""
    findings: tuple[RiskFinding, ...] = ()

    @property
    def changed(self) -> bool:
        """True if `text` differs from the original."""
        return self.text != self.original

    @property
    def id(self) -> str:
        """Names the original, in placeholders and records."""
        return compute_text_id(self.original)


@dataclass(frozen=True)
class CallDecision:
    """The guard's decision on one tool call."""

    tool: str
    handling: Handling
    score: float
    findings: tuple[RiskFinding, ...]

    @property
    def allowed(self) -> bool:
        """True if the call may run. A score at which a text would be rewritten is only noted."""
        return self.handling in (Handling.ALLOW, Handling.REWRITE)

    @property
    def reason(self) -> str:
        """One fixed sentence for the agent: it quotes no argument."""
        kinds = dict.fromkeys(finding.kind for finding in self.findings)
        refusal = "held for review" if self.handling is Handling.QUARANTINE else "denied"
        return f"The call was {refusal} by the security policy ({', '.join(kinds)})."


class GuardDenied(Exception):
    """A guarded tool was called in a way that its guard does not allow."""

    def __init__(self, decision: CallDecision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class Guard:
    """The three layers with their settings. Holds no conversation; usable from many threads.

    Args:
        layers: Those that act: `normalization`, `policy`, `contagion`; None: all.
        policy: Which calls are allowed: a `Policy`, the name of a shipped one or a file. None: every call
            that breaks no rule on content is (there is nothing to look a tool up in).
        role: The policy's role; None: its default one.
        thresholds: Lowest scores of `rewrite`, `quarantine` and `block`; None: 3.0, 5.0 and 6.6.
        combine: `accumulate` or `maximum`, see `agentsys_plugins.vectors.middleware.guard_settings`.
        scope: Whether a quarantined or blocked `text` is held back whole, or only its `sentences` with
            instructions.

    Raises:
        Unavailable: If the extra `middleware` is not installed.
    """

    def __init__(
        self,
        *,
        layers: Sequence[str] | str | None = None,
        policy: ToolPolicy | str | None = None,
        role: str | None = None,
        thresholds: Mapping[str, float] | None = None,
        combine: str = "accumulate",
        scope: str = "text",
    ) -> None:
        require_middleware_packages()
        self.settings = GuardSettings.from_options(layers, thresholds, combine=combine, scope=scope)
        policy = load_tool_policy(policy) if isinstance(policy, str) else policy
        self.tools = None if policy is None else policy.tools_of(role)
        self._screened = lru_cache(maxsize=_KEPT)(self._screen)

    def text(self, text: str) -> Screened:
        """Screen an untrusted text: layer 1 cleans it, layer 2 weighs what it says."""
        return self._screened(text)

    def session(self) -> GuardSession:
        """Open a fresh conversation."""
        return GuardSession(self)

    def _screen(self, text: str) -> Screened:
        cleaned = text
        findings: list[RiskFinding] = []
        if self.settings.has(GuardLayer.NORMALIZATION):
            cleaned, findings = normalize_text(text)
        if not self.settings.has(GuardLayer.POLICY):
            handling = Handling.REWRITE if cleaned != text else Handling.ALLOW
            return Screened(text, cleaned, handling, self.score(findings), tuple(findings))
        return self.decide_handling(text, cleaned, [*findings, *_find_risks(cleaned)])

    def decide_handling(self, original: str, cleaned: str, findings: Sequence[RiskFinding]) -> Screened:
        """Decide how a text with these findings is handled."""
        settings, score = self.settings, self.score(findings)
        handling = settings.thresholds.pick_handling(score)
        if handling is Handling.ALLOW:
            handling = Handling.REWRITE if cleaned != original else handling
            return Screened(original, cleaned, handling, score, tuple(findings))
        # A text that is cut must be harmless without what was cut: what gives an order over several
        # sentences is held back whole.
        if handling is Handling.REWRITE or settings.scope == "sentences":
            rest = remove_instructions(cleaned, between=settings.scope == "sentences")
            if rest != cleaned and self.score(_find_risks(rest)) < settings.thresholds.rewrite:
                return Screened(original, rest, handling, score, tuple(findings))
            handling = Handling.QUARANTINE if handling is Handling.REWRITE else handling
        return Screened(original, make_placeholder(handling, original), handling, score, tuple(findings))

    def score(self, findings: Sequence[RiskFinding]) -> float:
        """The risk of some findings, 0 to 10."""
        return combine_weights([finding.weight for finding in findings], self.settings.combine)


class GuardSession:
    """One conversation: the texts read in it, and the checks on what it passes on."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.spread = ContagionMonitor()
        self.held: dict[str, Screened] = {}
        """Everything that was held back so far, by id."""

    def reads(self, text: str, source: str = "input") -> Screened:
        """Screen an untrusted text before an agent reads it."""
        screened = self.guard.text(text)
        if self.guard.settings.has(GuardLayer.CONTAGION):
            # As it came: what was taken out here may still be met by another way.
            self.spread.record_input(text, source)
        return self._remember(screened)

    def calls(
        self,
        tool: str,
        args: Mapping[str, Any],
        tools: Mapping[str, Mapping[str, ArgumentRule]] | None = None,
    ) -> CallDecision:
        """Judge a tool call before it runs; `tools` takes the place of the guard's own policy."""
        findings: list[RiskFinding] = []
        settings = self.guard.settings
        if settings.has(GuardLayer.POLICY):
            findings += find_violations(tool, args, self.guard.tools if tools is None else tools)
        if settings.has(GuardLayer.CONTAGION):
            for text in iterate_texts(args):
                findings += self.spread.check_output(text, f"argument of {tool}")
        score = self.guard.score(findings)
        return CallDecision(tool, settings.thresholds.pick_handling(score), score, tuple(findings))

    def passes_on(self, text: str, stage: str) -> Screened:
        """Screen what an agent wrote before it reaches another agent or the user (layer 3)."""
        if not self.guard.settings.has(GuardLayer.CONTAGION):
            return Screened(text, text, Handling.ALLOW, 0.0)
        return self._remember(self.guard.decide_handling(text, text, self.spread.check_output(text, stage)))

    def tool(self, function: Callable[..., _Result], name: str | None = None) -> Callable[..., Any]:
        """Wrap a function as a guarded tool: a denied call raises `GuardDenied`, texts are screened."""
        called = name or function.__name__

        def run_guarded(**args: Any) -> Any:
            decision = self.calls(called, args)
            if not decision.allowed:
                raise GuardDenied(decision)
            return screen_value(function(**args), lambda text: self.reads(text, called))

        return run_guarded

    def step(self, function: Callable[[str], str], name: str) -> Callable[[str], str]:
        """Any step from text to text (an agent, a summarizer) with its input and its output guarded."""

        def run_guarded(text: str) -> str:
            return self.passes_on(function(self.reads(text, f"input of {name}").text), name).text

        return run_guarded

    def _remember(self, screened: Screened) -> Screened:
        if screened.handling in (Handling.QUARANTINE, Handling.BLOCK):
            self.held[screened.id] = screened
        return screened


def screen_value(value: Any, screen: Callable[[str], Screened]) -> Any:
    """JSON-like data with every text in it screened; the very same object if none changed."""
    if isinstance(value, str):
        screened = screen(value)
        return screened.text if screened.changed else value
    if not isinstance(value, Mapping | list | tuple):
        return value
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    items = {key: screen_value(item, screen) for key, item in entries}
    if all(items[key] is value[key] for key in items):
        return value
    return items if isinstance(value, Mapping) else list(items.values())


def compute_text_id(text: str) -> str:
    """Return a short id of a text, by its content."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def make_placeholder(handling: Handling, original: str) -> str:
    """Make the notice that replaces a withheld text. It quotes nothing of it."""
    if handling is Handling.QUARANTINE:
        return f"[held for review: {compute_text_id(original)}]"
    return f"[blocked: text with instructions, {compute_text_id(original)}]"


def _find_risks(text: str) -> list[RiskFinding]:
    findings = [(seen.view, seen.as_finding("policy")) for seen in find_sightings(text)]
    return [
        finding if view == "plain" else replace(finding, kind=f"{finding.kind} ({view})")
        for view, finding in findings
    ]
