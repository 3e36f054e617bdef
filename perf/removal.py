"""How long PromptArmor's removal takes: a quotation of 200 words in texts of 1 MB, some made to be slow.

Usage: python perf/removal.py [--repeat N]

CPU time of the process, the best of N. Beside it stands a removal of half the text: a ratio near 2 means that
time grows with the text and not with its square.
"""

from __future__ import annotations

import argparse
import time

from baselines.promptarmor.removal import remove

MEGABYTE = 1_000_000
WANTED_S = 0.2
QUOTATION = " ".join(f"word{number}" for number in range(200))
FILLINGS = {
    "prose": "The meeting is at ten and everybody who can should bring a list of open questions. ",
    "first words": "word0 word1 lorem ipsum ",
    "all but the last word": " ".join(QUOTATION.split()[:-1]) + " ",
    "no word of it": "0123456789 " * 9,
}
"""What the text in front of the quotation is made of."""


def text_of(filling: str, size: int) -> str:
    """A text of this many characters that ends in the quotation."""
    body = filling * (size // len(filling) + 1)
    return body[: size - len(QUOTATION) - 1] + " " + QUOTATION


def seconds(text: str, repeat: int) -> float:
    """CPU seconds of one removal, the best of several."""
    taken = []
    for _ in range(repeat):
        start = time.process_time()
        left = remove(text, QUOTATION, fuzzy=True, gap=40)
        taken.append(time.process_time() - start)
        if left is None or QUOTATION in left:
            raise SystemExit("the quotation was not removed")
    return min(taken)


def main() -> None:
    """Print a line per filling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    for name, filling in FILLINGS.items():
        whole, half = (seconds(text_of(filling, size), repeat) for size in (MEGABYTE, MEGABYTE // 2))
        print(f"{name}: {whole:.3f} s (wanted: {WANTED_S}), {whole / half:.1f} times that of half the text")


if __name__ == "__main__":
    main()
