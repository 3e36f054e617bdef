"""`Sloppiness`: how often the simulated model writes as a language model does, and not as it was asked to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentsys.errors import ConfigError, unknown_name

SLIP_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "several_calls": "makes the next call in the same turn, where it needs nothing from the first",
        "wrong_first_span": "names an innocent line before the passages it was asked for",
        "paraphrased_quotes": "quotes with words left out",
        "decoded_quotes": "quotes as one line, with escapes resolved",
        "partial_quotes": "quotes the first half only",
        "numbers_as_strings": "writes numbers of JSON in quotes, tools' arguments included",
        "trailing_commas": "puts a comma behind the last entry of JSON",
        "fenced_json": "puts JSON into a code fence, with a sentence before and after",
        "explained_verdicts": "puts a sentence before or after a verdict of one word",
        "type_aliases": "declares `str`, `int`, `float` and `bool` in an intent",
        "calls_as_text": "writes a tool call into its text, where nobody makes it",
        "refusals": "refuses",
        "empty_replies": "says nothing",
    }
)
"""Part -> what the model does then, in the order in which they are applied."""

ENDING_SLIPS = frozenset({"calls_as_text", "refusals", "empty_replies"})
"""Parts that end most conversations at once."""
ENDING_SHARE = 0.1
"""What of a single rate for all parts those get: else nothing would be left to see the others in."""


@dataclass(frozen=True)
class Sloppiness:
    """The rate of each part."""

    rates: Mapping[str, float]
    """Part -> probability per reply that it fits; parts that are not used are left out."""
    label: str
    """As it was set: `0.3`, or parts and rates."""

    @property
    def note(self) -> str:
        """The note in a record made with it; empty where there is none."""
        return f"simulated, sloppiness {self.label}" if self.rates else ""


NO_SLOPPINESS = Sloppiness({}, "0")
"""None at all."""


def parse_sloppiness(model: str, value: object) -> Sloppiness:
    """Read the option.

    Args:
        model: The model's name, for messages.
        value: One rate for all parts (a tenth of it for those that end a conversation), or a mapping of
            parts to rates.

    Raises:
        ConfigError: If a part is unknown, or a rate is no number from 0 to 1.
    """
    if isinstance(value, Mapping):
        for part in value:
            if part not in SLIP_KINDS:
                raise ConfigError(
                    f"Model '{model}': {unknown_name('part of sloppiness', str(part), list(SLIP_KINDS))}"
                )
        rates = {
            part: check_probability(model, f"sloppiness.{part}", value[part]) for part in SLIP_KINDS if part in value
        }
        used = {part: rate for part, rate in rates.items() if rate > 0}
        return Sloppiness(
            MappingProxyType(used), ", ".join(f"{part} {rate:g}" for part, rate in used.items())
        )
    rate = check_probability(model, "sloppiness", value)
    if rate == 0:
        return NO_SLOPPINESS
    spread = {part: rate * ENDING_SHARE if part in ENDING_SLIPS else rate for part in SLIP_KINDS}
    return Sloppiness(spread, f"{rate:g}")


def check_probability(model: str, option: str, value: object) -> float:
    """The value of a model's option, if it is a probability.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"Model '{model}': {option} is {value!r}; give a probability from 0.0 to 1.0.")
    return float(value)
