"""`check_bundle`: run a bundle's cases again, offline and confined, and say what `agentsys check` prints of it.

As a program (`python -m agentsys.bundles.check_bundle FILE WORKERS TRUST`) it is the child that does the work, with a
folder of its own, no network and no keys: each case is run from the bundle's own replies and compared with its record;
the outcome is printed as JSON.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck

_FOLDER_VARIABLE = "AGENTSYS_CONFINED_TO"
"""Tells the child which folder is its own."""
_KEPT = {"PATH", "HOME", "LANG", "TZ", "TERM", "COLUMNS", "NO_COLOR", "SYSTEMROOT", "PYTHONPATH", "HF_HOME"}
_KEPT_PREFIXES = ("LC_", "XDG_")
"""What the child may know of the environment: a list of what it may not would miss the next key."""
_NETWORK_EVENTS = frozenset(
    {"connect", "bind", "sendto", "sendmsg", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo"}
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGE_EVENTS = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.link", "os.truncate"}


def run_confined(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a module with arguments in a child, and give its exit status and what it printed.

    Its folder is new, is where it starts, and is removed behind it.
    """
    with tempfile.TemporaryDirectory(prefix="agentsys-verify-") as folder:
        passed = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        own = {_FOLDER_VARIABLE: folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        # -P: a module that lies in the folder is none of ours.
        command = [sys.executable, "-P", "-m", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=passed | own, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout


def confine_process() -> None:
    """Refuse this process, for good, every connection and every change outside its folder."""
    folder = os.path.realpath(os.environ[_FOLDER_VARIABLE])
    os.chdir(folder)
    tempfile.tempdir = folder

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket."):
            if event.removeprefix("socket.") in _NETWORK_EVENTS:
                raise PermissionError("a bundle is verified without network")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITE_FLAGS:
                _check_inside(path, folder)
        elif event in _CHANGE_EVENTS:
            _check_inside(arguments[0], folder)

    sys.addaudithook(refuse)


def _check_inside(path: object, folder: str) -> None:
    if isinstance(path, int) or path is None:  # a file that is open already
        return
    place = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
    if place != os.devnull and not Path(place).is_relative_to(folder):
        raise PermissionError(f"a bundle is verified in its own folder; {place} is outside")


_OFFLINE_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What keeps detectors' libraries from looking for weights on the network."""


def check_bundle(runs: RunsToCheck) -> Iterator[CheckFinding]:
    """Give the findings about a bundle; none about a folder.

    Raises:
        ConfigError: If the bundle is refused, or this machine lacks something it needs.
    """
    if not runs.given.is_file():
        return
    place = [str(runs.given.absolute()), str(runs.workers), str(int(runs.trust_code))]
    status, said = run_confined(["agentsys.bundles.check_bundle", *place])
    if status == 2:
        raise ConfigError(said.strip())
    try:
        found = json.loads(said)
    except ValueError:
        raise RuntimeError(f"the bundle's cases could not be run again (status {status})") from None
    yield from (CheckFinding(**(one | {"details": tuple(one["details"])})) for one in found)


def main(arguments: Sequence[str]) -> int:
    """Verify a bundle inside the child; the status is 2 where it is refused, with the reason as the output."""
    confine_process()
    os.environ.update(_OFFLINE_ENVIRONMENT)
    from agentsys.bundles.verify_bundle import verify_bundle

    warnings.filterwarnings("ignore", message="Model output was None")
    file, workers, trust = arguments
    try:
        # Some of AgentDojo's checkers print.
        with redirect_stdout(io.StringIO()):
            found = verify_bundle(Path(file), workers=int(workers), trust_code=trust == "1")
    except ConfigError as error:
        sys.stdout.write(str(error))
        return 2
    json.dump([asdict(one) for one in found.list_findings()], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
