"""Count the files and functions of ours that one case enters, from `agentsys run` to its table, by room.

    python perf/trace_case.py LOG_FOLDER [OVERRIDE...]

Every thread is traced. Bodies of modules and classes, comprehensions and lambdas are left out.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PREFIXES = tuple(f"{ROOT / room}/" for room in ("agentsys", "agentsys_plugins", "baselines"))
CASE = ["model=simulated", "defense=none", "benchmark.suites=[banking]", "user_tasks=[0]"]
CASE += ["injection_tasks=[0]", "attack=important_instructions"]
_IS_FUNCTION = 2  # `CO_NEWLOCALS`: bodies of modules and classes are without
entered: dict[str, set[tuple[int, str]]] = defaultdict(set)
"""File -> line and name of its functions that began."""


def note_call(frame: FrameType, event: str, _: object) -> None:
    """Note the function of a frame that begins."""
    code = frame.f_code
    is_named = code.co_flags & _IS_FUNCTION and not code.co_name.startswith("<")
    if event == "call" and is_named and code.co_filename.startswith(PREFIXES):
        entered[code.co_filename].add((code.co_firstlineno, code.co_qualname))


def main() -> None:
    """Run the command under the profile and print what it entered."""
    sys.argv = ["agentsys", "run", *CASE, f"logdir={sys.argv[1]}", *sys.argv[2:]]
    from agentsys.cli import main as run_command

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        run_command()
    except SystemExit as ended:
        print(f"exit status {ended.code or 0}")
    finally:
        sys.setprofile(None)
    print(f"{len(entered)} files, {sum(map(len, entered.values()))} functions")
    rooms: dict[str, list[str]] = defaultdict(list)
    for file in sorted(entered):
        path = Path(file).relative_to(ROOT)
        rooms["/".join(path.parts[:-1][:2])].append(file)
    for room, files in sorted(rooms.items()):
        print(f"{room}: {len(files)} files, {sum(len(entered[file]) for file in files)} functions")
        for file in files:
            print(f"  {Path(file).name}: {', '.join(name for _, name in sorted(entered[file]))}")


if __name__ == "__main__":
    main()
