"""Check the pages' prose: how long sentences are, and what proselint says of their words. Count hand-written words.

`python scripts/prose.py` names each page with a fault, and shows the sentences; status 1 if there are any.
`python scripts/prose.py --all` prints a line per page besides: words, sentences, median, 90th percentile.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parents[1]
MOST_MEDIAN = 18
"""Words; half of a page's sentences have at most so many."""
MOST_90TH = 30
"""Words; nine in ten of a page's sentences have at most so many."""
LEFT_OUT = {
    "typography": "The pages are Markdown source: straight quotes and three dots are what one types in a shell.",
}
"""Check of proselint -> why it misfires here. All others run, in prose alone: code and tables are left out."""
MARK = re.compile(r"<!-- (?:Made by|Below): .*?-->", re.DOTALL)
"""What stands below was written by a command."""
_MADE_PART = re.compile(r"^```.*?^```|<!-- (\w+) -->.*?<!-- \1 end -->", re.DOTALL | re.MULTILINE)
"""A block of code, which other tests run; a part between marks, which a command writes."""
_DIRECTIVE = re.compile(r"^::: .*(?:\n(?: {4}.*)?)*", re.MULTILINE)
"""Where mkdocstrings puts docstrings."""
_NEW_BLOCK = re.compile(r"\s*(?:[*+-]|\d+\.)\s+")
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|cf|vs)\.")
_END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[^a-z\s])")


def read_prose(text: str) -> str:
    """Drop code, and what commands wrote, from a page's text."""
    return _MADE_PART.sub("", MARK.split(text)[0])


def count_words(text: str) -> int:
    """Count the words that people wrote: what holds a letter or digit."""
    return sum(any(sign.isalnum() for sign in word) for word in read_prose(text).split())


def list_pages() -> list[Path]:
    """README, all of docs/, and the pages of the guests."""
    folders = (ROOT / "docs", ROOT / "agentsys_plugins")
    return [ROOT / "README.md", *sorted(page for folder in folders for page in folder.rglob("*.md"))]


def read_blocks(text: str) -> list[str]:
    """Paragraphs and points of lists, each on one line, without headings and tables."""
    blocks: list[list[str]] = [[]]
    for line in _DIRECTIVE.sub("", read_prose(text)).splitlines():
        if not line.strip() or line.startswith(("#", "|", "![")):
            blocks.append([])
        elif _NEW_BLOCK.match(line):
            blocks.append([_NEW_BLOCK.sub("", line, count=1)])
        else:
            blocks[-1].append(line.strip())
    return [" ".join(lines) for lines in blocks if lines]


def split_sentences(text: str) -> list[str]:
    """Sentences of a page. A piece of code is one word, and so is a link's address none."""
    found = []
    for block in read_blocks(text):
        plain = _LINK.sub(r"\1", _CODE.sub("Code", block))
        found += [sentence for sentence in _END.split(_ABBREVIATION.sub(r"\1", plain)) if sentence.strip()]
    return found


def count_lengths(text: str) -> list[int]:
    """Words of each sentence of a page, shortest first."""
    return sorted(count_words(sentence) for sentence in split_sentences(text))


def summarize(lengths: list[int]) -> tuple[float, int]:
    """Median and 90th percentile (nine in ten have at most so many words); 0, 0 of a page without a sentence."""
    if not lengths:
        return 0, 0
    return median(lengths), lengths[-(-9 * len(lengths) // 10) - 1]


def check_lengths(text: str) -> list[str]:
    """What is wrong with the length of a page's sentences, with the longest of them; empty if nothing is."""
    middle, long = summarize(count_lengths(text))
    if middle <= MOST_MEDIAN and long <= MOST_90TH:
        return []
    longest = sorted(split_sentences(text), key=count_words, reverse=True)[:3]
    limits = (
        f"median {middle:g} words (at most {MOST_MEDIAN}), nine in ten up to {long} (at most {MOST_90TH})"
    )
    return ["\n    ".join([f"{limits}. Split the longest:", *longest])]


def check_words(text: str) -> list[str]:
    """What proselint says of a page's words, each with the sentence's beginning."""
    if not CheckRegistry().checks:
        CheckRegistry().register_many(__register__)
    checks = {name: on and name not in LEFT_OUT for name, on in DEFAULT["checks"].items()}
    found = []
    for sentence in split_sentences(text):
        results = LintFile("page", sentence).lint({"max_errors": 100, "checks": checks})
        found += [f"{result.check_result.message} In: {sentence[:80]}" for result in results]
    return found


def main(words: list[str]) -> int:
    """Run the command of this file's docstring."""
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in list_pages()}
    if "--all" in words:
        for name, text in texts.items():
            lengths = count_lengths(text)
            middle, long = summarize(lengths)
            print(f"{count_words(text):6} {len(lengths):5} {middle:6g} {long:4}  {name}")
        print(f"{sum(count_words(text) for name, text in texts.items() if name != 'README.md'):6} in all")
    wrong = {name: [*check_lengths(text), *check_words(text)] for name, text in texts.items()}
    for name, faults in wrong.items():
        for fault in faults:
            print(f"{name}: {fault}", file=sys.stderr)
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
