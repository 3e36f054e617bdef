"""The `agentsys` command, and `python -m agentsys`."""

import os
import sys

from agentsys.hash_order import fix_hash_order


def main() -> None:
    """Entry point of the `agentsys` command: what holds for the whole process comes before the imports."""
    # OpenBLAS reads it when NumPy or SciPy is imported. Else each of its threads (one per core) spends 2**26
    # ticks of the clock on waiting for the next matrix before it sleeps: a tenth of a finished run's CPU.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    fix_hash_order(sys.argv[1:])

    from agentsys.cli import main as command

    command()


if __name__ == "__main__":
    main()
