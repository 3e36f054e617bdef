"""How often the 95% intervals hold the truth and the paired test errs: the tables of docs/statistics.md.

    python perf/interval_coverage.py [RUNS]

On generated outcomes shaped like AgentDojo; RUNS (default 1000) per line: a quarter of an hour.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # the tests use it as well

from interval_simulation import UNDEFENDED, Setting, coverage
from paired_simulation import DIFFERENT, EQUAL, SKEWED, judged

_REPLICATES = 1000

_RATES = {"undefended": UNDEFENDED, "low": (-3.0,) * 4, "very low": (-5.0,) * 4, "high": (1.5,) * 4}
_EFFECTS = ((0.0, 0.0, 0.0), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0))
_STRONG = ((1.0, 1.5, 1.0), (2.0, 2.0, 0.0), (2.5, 1.8, 0.0), (2.0, 2.5, 0.0), (1.0, 3.0, 0.0))


def main() -> None:
    """Print the tables in Markdown."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| rate | sd user, injection, pair | true ASR | covered | truth above, below | percentile |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, means in _RATES.items():
        for user, injection, pair in (*_EFFECTS, *_STRONG):
            setting = Setting(means, user, injection, pair)
            rate = coverage(setting, runs, replicates=_REPLICATES)
            print(
                f"| {name} | {user:g}, {injection:g}, {pair:g} | {100 * setting.truth:.1f} | "
                f"{100 * rate.calibrated:.1f} | {100 * rate.above:.1f}, {100 * rate.below:.1f} | "
                f"{100 * rate.percentile:.1f} |",
                flush=True,
            )
    for settings in (EQUAL, SKEWED):
        print("\n| two equal defenses | told apart | covered |\n| --- | ---: | ---: |")
        for name, setting in settings.items():
            found = judged(setting, runs, intervals=True)
            print(f"| {name} | {100 * found.rejected:.1f} | {100 * found.covered:.1f} |", flush=True)
    print("\n| two defenses | told apart | covered | length |\n| --- | ---: | ---: | ---: |")
    for name, setting in DIFFERENT.items():
        found = judged(setting, runs, intervals=True)
        shown = f"{100 * found.rejected:.1f} | {100 * found.covered:.1f} | {found.length:.1f}"
        print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
