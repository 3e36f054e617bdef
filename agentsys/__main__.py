"""The `agentsys` command, and `python -m agentsys`."""

import sys

from agentsys.hash_order import fix_hash_order


def main() -> None:
    """Entry point of the `agentsys` command: what may start the process again comes before the imports."""
    fix_hash_order(sys.argv[1:])

    from agentsys.cli import main as command

    command()


if __name__ == "__main__":
    main()
