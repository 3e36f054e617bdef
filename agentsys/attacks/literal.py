r"""Writes texts so that a model reads them letter by letter: line breaks, quotes, invisible characters.

AgentDojo puts what an attack writes between double quotes in a YAML file, which folds line breaks and ends at
a double quote. A text that is to survive is written with YAML's escapes (`\n`, `\"`): the file stays
AgentDojo's, and so does the benchmark's name. Where texts are put in as they are, nothing is escaped.
"""

from __future__ import annotations

import yaml

from agentsys.abilities import HasInjectionMode
from agentsys.contracts import Suite

EXACT_INJECTION = "exact"
"""The way of injecting in which a model reads what was written."""
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def has_yaml_environment(suite: Suite) -> bool:
    """Whether a suite's environment is a YAML file that injections are written into."""
    return not (isinstance(suite, HasInjectionMode) and suite.injection == EXACT_INJECTION)


def escape_for_suite(suite: Suite, text: str) -> str:
    """What an attack has to write so that a model reads `text`, letter by letter."""
    return escape_yaml(text) if has_yaml_environment(suite) else text


def unescape_for_suite(suite: Suite, written: str) -> str:
    """What a model reads of a written text; the text itself where it would break the environment's file."""
    return unescape_yaml(written) if has_yaml_environment(suite) else written


def escape_yaml(text: str) -> str:
    """The text as it stands inside double quotes in YAML, on one line."""
    middle = "".join(_escape_character(character) for character in text)
    # A line of the file may begin or end here: spaces there would be folded away.
    inner = middle.strip(" ")
    if not inner:
        return "\\x20" * len(middle)
    before, after = middle.index(inner), len(middle) - len(inner) - middle.index(inner)
    return "\\x20" * before + inner + "\\x20" * after


def unescape_yaml(written: str) -> str:
    """The text that YAML reads between double quotes; the text itself where that cannot be read."""
    if "\\" not in written and "\n" not in written:
        return written
    try:
        read = yaml.safe_load(f'"{written}"')
    except (yaml.YAMLError, ValueError, OverflowError):
        return written
    return read if isinstance(read, str) else written


def _escape_character(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    point = ord(character)
    if point > 0xFFFF:
        return f"\\U{point:08X}"
    return f"\\u{point:04X}" if point > 0xFF else f"\\x{point:02X}"
