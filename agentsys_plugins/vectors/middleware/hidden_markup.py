"""Hidden and active markup: comments, invisible elements and code are cut out of a text with markup.

A fast scanner cuts; a parser then checks that nothing is left.
"""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsys_plugins.vectors.middleware.guard_settings import load_optional

ACTIVE_ELEMENTS = frozenset((
    "script", "style", "iframe", "frame", "frameset", "object", "embed", "applet", "noscript", "template",
    "base",
))  # fmt: skip
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
    """Return a style in lower case, without spaces and comments."""
    # A comment may have several lines; one that is never closed goes on to the end, as in a browser.
    return re.sub(r"\s+|/\*.*?(?:\*/|\Z)", "", style.lower(), flags=re.DOTALL)


def does_style_hide(style: str, background: str = "") -> bool:
    """True if a style (without spaces) makes text unreadable on a background colour."""
    if _HIDES.search(style):
        return True
    colour, behind = _COLOUR.search(style), read_background(style) or background
    return bool(colour and behind and normalize_colour(colour.group(1)) == behind)


def read_background(style: str) -> str:
    """Return the background colour that a style sets, normalized; `""` if it sets none."""
    match = _BACKGROUND.search(style)
    return normalize_colour(match.group(1)) if match else ""


def normalize_colour(colour: str) -> str:
    """Convert a colour to `#rrggbb` if it is one; else return its spelling."""
    if re.fullmatch(r"#[0-9a-f]{3}", colour):
        return "#" + "".join(digit * 2 for digit in colour[1:])
    numbers = re.fullmatch(r"rgba?\((\d+),(\d+),(\d+)(?:,[\d.]+)?\)", colour)
    if numbers:
        return "#" + "".join(f"{min(int(number), 255):02x}" for number in numbers.groups())
    return _NAMED.get(colour, colour)


def find_hiding_rules(sheet: str) -> list[str]:
    """Selectors of a style sheet whose rules hide, among those that name one class, id or element."""
    return [
        selector.strip()
        for selectors, body in _RULE.findall(sheet)
        if does_style_hide(squeeze_style(body))
        for selector in selectors.split(",")
        if re.fullmatch(r"\s*[\w-]*[.#]?[\w-]+\s*", selector)
    ]


def must_go(name: str, attributes: Mapping[str, Any], background: str) -> bool:
    """True if an element runs or loads something, redirects by itself, or is not shown."""
    if name in ACTIVE_ELEMENTS or (name == "meta" and "http-equiv" in attributes) or "hidden" in attributes:
        return True
    if str(attributes.get("type", "")).lower() == "hidden":
        return True
    return does_style_hide(squeeze_style(str(attributes.get("style", ""))), background)


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


MOST_PARSED = 48 * 1024
"""Characters of markup that are parsed; a longer text is cleaned by its tags alone, without a tree."""
_SUSPICIOUS = re.compile(
    r"<!--|<!\[|<\?|<(?:script|style|iframe|frame|object|embed|applet|noscript|template|base|meta)\b|"
    r"\bhidden\b|\bstyle\s*=|\bon[a-zA-Z]{3,20}\s*=|(?:javascript|vbscript|data)\s*:|&#|srcdoc",
    re.IGNORECASE,
)
"""A text with markup is read tag by tag only if it matches this."""
# A `>` inside a quoted value ends the tag here; the parser's check below sees what that leaves.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})([^<>]*)>")
_COMMENT = re.compile(r"<!--(?:>|->|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?[^<>]*>", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?")
_LONGEST_SHEET = 20_000
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


@dataclass(frozen=True)
class CleanedMarkup:
    """A page without hidden and active parts."""

    text: str
    hidden: tuple[str, ...] = ()
    """Removed texts that a browser would not have shown."""
    active: tuple[str, ...] = ()
    """Names of removed elements and attributes that run or load something."""


def remove_hidden_markup(text: str) -> CleanedMarkup:
    """Take comments, hidden and active elements and active attributes out of a text with markup."""
    if "<" not in text or not _SUSPICIOUS.search(text):
        return CleanedMarkup(text)
    comments = [re.sub(r"^<!--|--!?>$", "", comment[0]).strip() for comment in _COMMENT.finditer(text)]
    page = CleanedMarkup(_COMMENT.sub("", text), tuple(comment for comment in comments if comment))
    cut = _remove_elements(page, _find_hiding_selectors(page.text))
    if len(cut.text) > MOST_PARSED or "<" not in cut.text:
        return cut
    return _verify_cut(cut)


def _find_hiding_selectors(text: str) -> frozenset[str]:
    lower, selectors, at = text.lower(), [], 0
    while (start := lower.find("<style", at)) >= 0:
        end = lower.find("</style", start)
        at = len(text) if end < 0 else end + 1
        selectors += find_hiding_rules(text[start:at][:_LONGEST_SHEET].partition(">")[2])
    return frozenset(selectors)


@dataclass
class _OpenElement:
    name: str
    start: int
    depth: int = 1


def _remove_elements(page: CleanedMarkup, rules: frozenset[str]) -> CleanedMarkup:
    """Cut whole elements, and attributes inside the tags that stay, in one pass over the tags."""
    text, parts, at = page.text, [], 0
    hidden, active = list(page.hidden), list(page.active)
    cutting: _OpenElement | None = None
    behind: list[tuple[str, str]] = []
    for tag in _TAG.finditer(text):
        closes, name = tag.group(1) == "/", tag.group(2).lower()
        if cutting is not None:
            if name == cutting.name:
                cutting.depth += -1 if closes else 1
                if not cutting.depth:
                    hidden.append(_read_words(text[cutting.start : tag.end()]) or name)
                    at, cutting = tag.end(), None
            continue
        attributes = {} if closes else _read_attributes(tag.group(3))
        background = behind[-1][1] if behind else "#ffffff"
        if closes:
            _close_element(behind, name)
        elif _is_hidden_by_rule(name, attributes, rules) or must_go(name, attributes, background):
            parts.append(text[at : tag.start()])
            at = tag.end()
            if name in ACTIVE_ELEMENTS or name == "meta":
                active.append(name)
            elif name in _VOID:
                hidden.append(attributes.get("value") or name)
            if name not in _VOID and not tag.group(3).endswith("/"):
                cutting = _OpenElement(name, tag.start())
        else:
            bad = find_bad_attributes(attributes)
            if bad:
                parts += [text[at : tag.start()], _remove_attributes(tag.group(), bad)]
                at, active = tag.end(), [*active, *bad]
            own = read_background(squeeze_style(attributes.get("style", attributes.get("bgcolor", ""))))
            if name not in _VOID:
                behind.append((name, own or background))
    if cutting is not None:
        hidden.append(_read_words(text[cutting.start :]))
        at = len(text)
    return CleanedMarkup("".join([*parts, text[at:]]), tuple(filter(None, hidden)), tuple(active))


def _close_element(behind: list[tuple[str, str]], name: str) -> None:
    """Close the nearest open element of this name; a stray end tag closes nothing."""
    for index in range(len(behind) - 1, max(-1, len(behind) - 32), -1):
        if behind[index][0] == name:
            del behind[index:]
            return


def _is_hidden_by_rule(name: str, attributes: dict[str, str], rules: frozenset[str]) -> bool:
    classes = [f".{word}" for word in attributes.get("class", "").split()]
    names = (name, *classes, *(f"{name}{word}" for word in classes), f"#{attributes.get('id', '')}")
    return not rules.isdisjoint(names)


def _read_attributes(source: str) -> dict[str, str]:
    return {
        name.lower(): html.unescape((value or "").strip("\"'"))
        for name, value in _ATTRIBUTE.findall(source[:4000])
    }


def _remove_attributes(tag: str, bad: list[str]) -> str:
    for name in bad:
        # From where white space begins: a long run of it would be tried from each of its places.
        written = rf"(?<!\s)\s+{re.escape(name)}(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?"
        tag = re.sub(written, "", tag, flags=re.IGNORECASE)
    return tag


def _read_words(markup: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^<>]*>", " ", markup)).strip()


def _verify_cut(cut: CleanedMarkup) -> CleanedMarkup:
    """Return the cut page if a parser finds nothing left in it; else the parsed page, cleaned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of BeautifulSoup: a text that looks like a file name or a URL
        soup = load_optional("bs4").BeautifulSoup(cut.text, "html5lib")
    left = list(_find_leftovers(soup))
    if not left:
        return cut
    hidden, active = list(cut.hidden), list(cut.active)
    for element in left:
        text = element.get_text(" ", strip=True) if hasattr(element, "get_text") else str(element)
        hidden.append(text)
        element.extract()
    for element in soup.find_all(True):
        for name in find_bad_attributes(element.attrs):
            del element[name]
            active.append(name)
    body = soup.body.decode_contents() if soup.body is not None else str(soup)
    return CleanedMarkup(body, tuple(filter(None, hidden)), tuple(active))


def _find_leftovers(soup: Any) -> Iterator[Any]:
    comment = load_optional("bs4").Comment
    rules = [selector for sheet in soup.find_all("style") for selector in find_hiding_rules(sheet.get_text())]
    by_rule = {id(match) for selector in rules for match in soup.select(selector)}
    yield from soup.find_all(string=lambda text: isinstance(text, comment))
    for element in soup.find_all(True):
        attributes = {name: " ".join(v) if isinstance(v, list) else v for name, v in element.attrs.items()}
        if id(element) in by_rule or must_go(element.name, attributes, "#ffffff"):
            yield element
