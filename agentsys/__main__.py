"""`python -m agentsys` is the `agentsys` command."""

from agentsys.cli import main

if __name__ == "__main__":
    main()
