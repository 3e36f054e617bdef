"""Count the files and functions of ours that a command enters, and list them by room.

    python perf/trace_case.py OUT_FOLDER [OVERRIDE...]

Follows `agentsys run` on one attacked case without a defense, from the command line to the table; every thread
is traced. The bodies of modules and classes, comprehensions and lambdas count as part of what they stand in.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
CASE = ["model=simulated", "defense=none", "benchmark.suites=[banking]", "user_tasks=[0]"]
CASE += ["injection_tasks=[0]", "attack=important_instructions"]
entered: dict[str, set[tuple[int, str]]] = defaultdict(set)


def note_call(frame: FrameType, event: str, _: object) -> None:
    """Note the function of a frame that begins."""
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(PREFIXES) and code.co_flags & 2:  # 2: a function
        name = code.co_qualname.rpartition(".")[2]
        if not name.startswith("<"):
            entered[code.co_filename].add((code.co_firstlineno, code.co_qualname))


PREFIXES = tuple(f"{ROOT / room}/" for room in ("agentsys", "baselines"))


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
    rooms: dict[str, list[str]] = defaultdict(list)
    for file in sorted(entered):
        path = Path(file).relative_to(ROOT)
        rooms[path.parts[1] if len(path.parts) > 2 else path.parts[0]].append(str(path))
    print(f"{len(entered)} files, {sum(map(len, entered.values()))} functions")
    for room, files in sorted(rooms.items()):
        count = sum(len(entered[str(ROOT / file)]) for file in files)
        print(f"{room}: {len(files)} files, {count} functions")
        for file in files:
            names = ", ".join(name for _, name in sorted(entered[str(ROOT / file)]))
            print(f"  {file}: {len(entered[str(ROOT / file)])} ({names})")


if __name__ == "__main__":
    main()
