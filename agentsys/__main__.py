"""The `agentsys` command, and `python -m agentsys`."""

from agentsys.cli import main

if __name__ == "__main__":
    main()
