"""`check_bundle`: run a bundle's cases again, offline and confined, and say what `agentsys check` prints of it.

As a program (`python -m agentsys.bundles.check_bundle FILE WORKERS TRUST`) it is the child that does the work:
each case is run from the bundle's own replies and compared with its record; the outcome is printed as JSON.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path

from agentsys.bundles.confined_process import confine_process, run_confined
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck

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
