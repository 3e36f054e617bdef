"""The pages read fast: sentences are short, words are plain, and the first line says what a page is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from prose import (
    DEFAULT,
    LEFT_OUT,
    MOST_90TH,
    ROOT,
    check_lengths,
    check_words,
    count_lengths,
    list_pages,
    read_blocks,
    split_sentences,
    summarize,
)

PAGES = list_pages()


def sentence(words: int) -> str:
    return "Word" + " word" * (words - 1) + ". "


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_a_page_are_short(page: Path) -> None:
    assert check_lengths(page.read_text(encoding="utf-8")) == []


def test_proselint_finds_nothing_on_the_pages() -> None:
    found = {page.name: check_words(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_page_begins_with_what_it_is_for() -> None:
    """Below its title stands a line of its own, before any table, code or heading."""
    wordy = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if not read_blocks(text):  # made by a command as a whole
            continue
        _, _, below = text.split("# ", 1)[-1].partition("\n")
        first = below.strip().split("\n\n")[0]
        if not first or first[0] in "#|`!<*" or not 0 < len(split_sentences(first)) <= 3 or "\n" in first:
            wordy.append(str(page.relative_to(ROOT)))
    assert wordy == []


def test_a_page_of_long_sentences_is_named_with_the_longest() -> None:
    (fault,) = check_lengths(sentence(19) * 10)
    assert "median 19 words" in fault and "Word word" in fault
    assert check_lengths(sentence(18) * 10) == []


def test_one_sentence_in_ten_may_be_long() -> None:
    assert check_lengths(sentence(10) * 9 + sentence(MOST_90TH + 1)) == []
    (fault,) = check_lengths(sentence(10) * 8 + sentence(MOST_90TH + 1) * 2)
    assert f"nine in ten up to {MOST_90TH + 1}" in fault


def test_the_figures_of_a_page_without_a_sentence_are_nought() -> None:
    assert summarize(count_lengths("# Title\n\n| a | b |\n")) == (0, 0)


def test_what_counts_as_a_sentence() -> None:
    page = """# A title is none

First one, e.g. with `agentsys run x=1. Y` in it. Is this the second? (It is.)
* A point
  on two lines
* [A link](http://x.y/z. Z) of the third

| a table | is none. Really. |

```
code. Is. None.
```

<!-- made -->
Written by a command. Twice.
<!-- made end -->
"""
    assert split_sentences(page) == [
        "First one, e.g with Code in it.",
        "Is this the second?",
        "(It is.)",
        "A point on two lines",
        "A link of the third",
    ]


def test_what_stands_below_the_mark_of_a_command_is_not_read() -> None:
    assert read_blocks("One.\n\n<!-- Made by: x -->\n\nTwo.") == ["One."]


def test_a_doubled_word_and_a_weak_one_are_found_and_quoted_marks_are_not() -> None:
    assert len(check_words("This is the the page.")) == 1
    assert len(check_words("It is very unique.")) >= 1
    assert check_words('You type "..." here.') == []


def test_only_checks_that_proselint_has_are_left_out() -> None:
    assert set(LEFT_OUT) <= set(DEFAULT["checks"])
