"""Which elements of a page a reader does not see, or that run: by their names, attributes and style rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ACTIVE_ELEMENTS = frozenset(
    {
        "script",
        "style",
        "iframe",
        "frame",
        "frameset",
        "object",
        "embed",
        "applet",
        "noscript",
        "template",
        "base",
    }
)
"""Elements that run, load or hold what is not shown. Form controls stay: agents fill in forms."""
_HIDES = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|opacity:0?\.?0*(?:;|!|$)|font-size:0*\.?0*(?:px|pt|em|rem|%)?(?:;|!|$)|"
    r"font-size:[01]px|(?:^|;)(?:width|height|max-height|max-width):0(?:px)?(?:;|!|$)|"
    r"(?:left|top|right|bottom|text-indent|margin-left|margin-top):-\d{3,}|clip:rect\(0|clip-path:inset\((?:50|100)%|"
    r"transform:scale\(0\)|color:transparent|mso-hide:all"
)
_COLOUR = re.compile(r"(?:^|;)color:([^;!]+)")
_BACKGROUND = re.compile(r"(?:^|;)background(?:-color)?:([^;!]+)")
_RULE = re.compile(r"([^{}<>]{1,200}+)\{([^{}]{0,2000}+)\}")
_NAMED = {"white": "#ffffff", "black": "#000000", "red": "#ff0000", "yellow": "#ffff00", "blue": "#0000ff"}
_DANGEROUS_LINK = re.compile(r"^[\s\x00-\x20]*(?:javascript|vbscript|data)\s*:", re.IGNORECASE)


def squeeze_style(style: str) -> str:
    """A style in small letters, without spaces and comments."""
    return re.sub(r"\s+|/\*.*?\*/", "", style.lower())


def style_hides(style: str, background: str = "") -> bool:
    """Whether a style (squeezed) makes text unreadable on a background colour."""
    if _HIDES.search(style):
        return True
    colour = _COLOUR.search(style)
    own = _BACKGROUND.search(style)
    behind = normalize_colour(own.group(1)) if own else background
    return bool(colour and behind and normalize_colour(colour.group(1)) == behind)


def read_background(style: str) -> str:
    """The background colour that a style sets, in plain form; `""` if it sets none."""
    found = _BACKGROUND.search(style)
    return normalize_colour(found.group(1)) if found else ""


def normalize_colour(colour: str) -> str:
    """A colour in one of its spellings: `#rrggbb` where it is one."""
    if re.fullmatch(r"#[0-9a-f]{3}", colour):
        return "#" + "".join(digit * 2 for digit in colour[1:])
    numbers = re.fullmatch(r"rgba?\((\d+),(\d+),(\d+)(?:,[\d.]+)?\)", colour)
    if numbers:
        return "#" + "".join(f"{min(int(number), 255):02x}" for number in numbers.groups())
    return _NAMED.get(colour, colour)


def find_hiding_rules(sheet: str) -> list[str]:
    """Selectors of a style sheet whose rules hide, among those that name one class, id or element."""
    rules = [(selectors, squeeze_style(body)) for selectors, body in _RULE.findall(sheet)]
    return [
        one.strip()
        for selectors, body in rules
        if style_hides(body)
        for one in selectors.split(",")
        if re.fullmatch(r"\s*[\w-]*[.#]?[\w-]+\s*", one)
    ]


def is_hidden(attributes: Mapping[str, Any], background: str) -> bool:
    """Whether an element is not shown, by its own attributes."""
    if "hidden" in attributes or str(attributes.get("type", "")).lower() == "hidden":
        return True
    return style_hides(squeeze_style(str(attributes.get("style", ""))), background)


def is_refresh(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether it is a `meta` element that leads elsewhere by itself."""
    return name == "meta" and "http-equiv" in attributes


def find_bad_attributes(attributes: Mapping[str, Any]) -> list[str]:
    """Attributes that run code: event handlers, and links of `javascript:` or `data:`."""
    return [
        name
        for name, value in attributes.items()
        if name.lower().startswith("on")
        or name.lower() == "srcdoc"
        or (name.lower() in ("href", "src", "action", "formaction", "xlink:href", "data", "poster")
            and _DANGEROUS_LINK.match(str(value)) and not str(value).lower().startswith("data:image/"))
    ]  # fmt: skip
