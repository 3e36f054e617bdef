"""`check_bundle`: runs a bundle's cases again, offline and confined, for `agentsys check`.

As a program (`python -m agentsys_plugins.bundles.check_bundle FILE WORKERS TRUST`) this module is the child process
that does the work, with its own folder, no network and no keys: it runs each case from the bundle's own replies,
compares it with its record, and prints the findings as JSON.
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
"""Environment variable with the child's own folder."""
_KEPT = {"PATH", "HOME", "LANG", "TZ", "TERM", "COLUMNS", "NO_COLOR", "SYSTEMROOT", "PYTHONPATH", "HF_HOME"}
_KEPT_PREFIXES = ("LC_", "XDG_")
"""Environment variables that the child gets. An allow-list: a deny-list would miss the next key."""
_NETWORK_EVENTS = frozenset(
    {"connect", "bind", "sendto", "sendmsg", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo"}
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGE_EVENTS = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.link", "os.truncate"}


def run_confined(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a module with arguments in a child process; return its exit status and output.

    It starts in a new folder, which is removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="agentsys-verify-") as folder:
        passed = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(_KEPT_PREFIXES)
        }
        own = {_FOLDER_VARIABLE: folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        # -P: do not import modules from the folder.
        command = [sys.executable, "-P", "-m", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=passed | own, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout


def confine_process() -> None:
    """Permanently forbid this process network connections and changes outside its folder."""
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
    if isinstance(path, int) or path is None:  # A file that is already open.
        return
    real_path = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
    if real_path != os.devnull and not Path(real_path).is_relative_to(folder):
        raise PermissionError(f"a bundle is verified in its own folder; {real_path} is outside")


_OFFLINE_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Environment that keeps detectors' libraries from looking for weights on the network."""


def check_bundle(runs: RunsToCheck) -> Iterator[CheckFinding]:
    """Yield the findings about a bundle; none for a folder.

    Raises:
        ConfigError: If the bundle is refused, or this machine lacks something it needs.
    """
    if not runs.given.is_file():
        return
    arguments = [str(runs.given.absolute()), str(runs.workers), str(int(runs.trust_code))]
    status, output = run_confined(["agentsys_plugins.bundles.check_bundle", *arguments])
    if status == 2:
        raise ConfigError(output.strip())
    try:
        findings = json.loads(output)
    except ValueError:
        raise RuntimeError(f"the bundle's cases could not be run again (status {status})") from None
    yield from (CheckFinding(**(finding | {"details": tuple(finding["details"])})) for finding in findings)


def main(arguments: Sequence[str]) -> int:
    """Verify a bundle inside the child; return status 2 and print the reason if it is refused."""
    confine_process()
    os.environ.update(_OFFLINE_ENVIRONMENT)
    from agentsys_plugins.bundles.verify_bundle import verify_bundle

    warnings.filterwarnings("ignore", message="Model output was None")
    file, workers, trust = arguments
    try:
        # Some of AgentDojo's checkers print.
        with redirect_stdout(io.StringIO()):
            verification = verify_bundle(Path(file), workers=int(workers), trust_code=trust == "1")
    except ConfigError as error:
        sys.stdout.write(str(error))
        return 2
    json.dump([asdict(finding) for finding in verification.list_findings()], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
