"""The `agentsys` command, and `python -m agentsys`."""

import sys

from agentsys.hash_order import fix_hash_order
from agentsys.runs.executors.collector import look_seldom


def main() -> None:
    """Entry point of the `agentsys` command: what holds for the whole process comes before the imports."""
    fix_hash_order(sys.argv[1:])
    look_seldom(sys.argv[1:])

    from agentsys.cli import main as command

    command()


if __name__ == "__main__":
    main()
