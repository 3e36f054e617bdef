"""Small log folders to be packed, and bundles of them with something changed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paid_server import Answer, calls, paid_model, paid_server, says
from small_runs import Silent

from agentsys.runs.run_session import prepare_session
from agentsys_plugins.bundles.verify_bundle import Verification, verify_bundle

SIMULATED = ("model=simulated", "defense=none,agentsys", "attack=important_instructions")
PAID = ("model=paid", "defense=none", "attack=none")
SMALL = ("benchmark.suites=[slack]", "limit_per_suite=2")


def run(logdir: Path, *overrides: str, conf: Sequence[Path] = (), plugins: Sequence[Path] = ()) -> None:
    session = prepare_session(
        [*overrides, *SMALL, f"logdir={logdir}"], config_dirs=list(conf), plugin_paths=list(plugins)
    )
    session.execute(Silent())


def paid_run(tmp_path: Path, logdir: Path, **model: Any) -> None:
    """Two cases of a model behind a server that is gone afterwards; each asks twice."""

    def answer(_: int, body: dict[str, Any]) -> Answer:
        return calls("get_channels", "{}") if body["messages"][-1]["role"] == "user" else says("Channels.")

    with paid_server(answer) as server:
        run(logdir, *PAID, conf=[paid_model(tmp_path, server.url, temperature=0.0, **model)])


def verified(bundle: Path, *, trust_code: bool = False) -> Verification:
    return verify_bundle(bundle, workers=2, trust_code=trust_code)


def holds(found: Verification) -> bool:
    """Whether every record is what it says, and every member as it was packed."""
    return not (found.bad or found.changed or found.ended)


def changed(bundle: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of a bundle with members as `change` gives them; None leaves one out."""
    other = bundle.with_name(f"changed-{bundle.name}")
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(other, "w") as new:
        for member in old.infolist():
            content = change(member.filename, old.read(member))
            if content is not None:
                new.writestr(member, content)
    return other


def names_in(bundle: Path, folder: str) -> list[str]:
    with zipfile.ZipFile(bundle) as packed:
        return [name for name in packed.namelist() if name.startswith(f"{folder}/")]


def flipped(content: bytes, at: int = -9) -> bytes:
    """One bit of one byte changed."""
    place = at % len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
