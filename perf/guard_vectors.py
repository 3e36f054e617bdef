"""How many attack texts the middleware finds, and look-alikes it takes for attacks, beside other filters.

Usage: python perf/guard_vectors.py [--half held_out] [--detectors]

A text counts as found if it does not pass as it is. The keyword filter is that of `defense=keyword_filter`;
`--detectors` adds the classifiers of ProtectAI and PIGuard (extra `detectors`, and the network once).
What is missed, and what is taken for an attack, is listed by name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from agentsys.benchmarks.vectors.corpus import CorpusText, Half, corpus
from agentsys.catalog import node
from baselines.detectors.phrases import PhraseDetector
from baselines.middleware import Guard

Finds = Callable[[str], bool]
DETECTORS = ("protectai", "piguard")


def filters(*, detectors: bool) -> Mapping[str, Finds]:
    """Name -> whether it takes a text for an attack."""
    guard, phrases = Guard(), PhraseDetector(node("defense", "keyword_filter")["patterns"])
    found: dict[str, Finds] = {
        "middleware": lambda text: guard.text(text).handling.value != "allow",
        "keyword filter": lambda text: phrases.score([text])[0] > 0.5,
    }
    return found | (dict(map(classifier, DETECTORS)) if detectors else {})


def classifier(name: str) -> tuple[str, Finds]:
    """A shipped detector defense's classifier, at its own threshold."""
    from agentsys.runs.instantiate import instantiate

    defense = instantiate("defense", node("defense", name))
    return name, lambda text: 1.0 - defense.detector().score([text])[0] < defense.options.threshold


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--half", default="held_out", choices=[half.value for half in Half])
    parser.add_argument("--detectors", action="store_true")
    options = parser.parse_args()
    half = Half(options.half)
    tried = filters(detectors=options.detectors)
    print("| vector | " + " | ".join(f"{name}: found | taken for attacks" for name in tried) + " |")
    print("| --- |" + " --- | --- |" * len(tried))
    totals = {name: [0, 0, 0, 0] for name in tried}
    named: list[str] = []
    for vector, texts in corpus().vectors.items():
        cells = []
        for name, finds in tried.items():
            attacks, alike = texts.of(half)
            hit = [text for text in attacks if finds(text.output)]
            wrong = [text for text in alike if finds(text.output)]
            cells.append(f"{len(hit)} of {len(attacks)} | {len(wrong)} of {len(alike)}")
            for place, number in enumerate((len(hit), len(attacks), len(wrong), len(alike))):
                totals[name][place] += number
            if name == "middleware":
                named += [told(vector, text, "missed") for text in attacks if text not in hit]
                named += [told(vector, text, "taken for an attack") for text in wrong]
        print(f"| {vector} | {' | '.join(cells)} |")
    print("| all | " + " | ".join(f"{a} of {b} | {c} of {d}" for a, b, c, d in totals.values()) + " |")
    print("\n".join(["", *named]))


def told(vector: str, text: CorpusText, what: str) -> str:
    """One line on a text that a filter got wrong."""
    return f"{vector} {text.id} {what}: {text.text}"


if __name__ == "__main__":
    main()
