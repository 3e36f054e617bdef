"""`ChangedHere`: what differs between the machine that a bundle was made on and this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsys.bundles.manifest import Manifest
from agentsys.bundles.rerun import RerunPlan
from agentsys.bundles.surroundings import hash_data_files, list_package_versions
from agentsys.runs.plan import list_differences
from agentsys.runs.provenance.package_files import hash_package_files

_MAX_NAMES = 8


@dataclass(frozen=True)
class MachineChanges:
    """The differences, in words."""

    versions: tuple[str, ...]
    code: tuple[str, ...]
    """Files of our packages."""
    data: tuple[str, ...]
    """Files of datasets."""
    settings: Mapping[str, tuple[str, ...]]
    """Hash of a cell -> what its settings say otherwise here."""
    files: Mapping[str, tuple[str, ...]]
    """Hash of a cell -> options whose files have other contents here."""

    def list_changed_data(self, suite: str) -> list[str]:
        """The dataset files of one suite."""
        return [name for name in self.data if f"/{suite}/" in name or name.startswith("fetched")]

    @property
    def lines(self) -> list[str]:
        """A line for each kind."""
        told = {"versions": self.versions, "code": self.code, "datasets": self.data}
        return [f"{kind}: {format_names(several)}" for kind, several in told.items() if several]


def format_names(several: Sequence[str]) -> str:
    """The first few of several names, and how many more there are."""
    more = f" and {len(several) - _MAX_NAMES} more" if len(several) > _MAX_NAMES else ""
    return f"{', '.join(several[:_MAX_NAMES])}{more}"


def compare_machines(manifest: Manifest, rerun: RerunPlan) -> MachineChanges:
    """Compare what a bundle was made with and what is here."""
    settings, files, code = {}, {}, list[str]()
    for config_hash, cell in manifest.cells.items():
        found = list_differences(cell.identity, rerun.identities[config_hash])
        files[config_hash] = tuple(one for one in found if one.startswith("content of "))
        settings[config_hash] = tuple(
            one for one in found if not one.startswith(("content of ", "version of ", "code of "))
        )
        code += [one for one in found if one.startswith("code of ")]
    now, files_here = list_package_versions(), hash_package_files()
    other = [name for name, then in sorted(manifest.versions.items()) if then != now.get(name)]
    # Our files as they differ from the nearest state that cases were run with.
    own = min((_list_differing(state, files_here) for state in manifest.code), key=len, default=())
    return MachineChanges(
        tuple(f"{name} ({manifest.versions[name]} then, {now.get(name, 'none')} now)" for name in other),
        (*own, *dict.fromkeys(code)),
        _list_differing(manifest.data, _hash_data(rerun)),
        settings,
        files,
    )


def _hash_data(rerun: RerunPlan) -> dict[str, str]:
    found: dict[str, str] = {}
    for cell in rerun.cells.values():
        suites = {job.case.suite for job in rerun.jobs if job.cell is cell}
        if not str(cell.settings.benchmark.get("data", "")).startswith("/"):
            found |= hash_data_files(cell.benchmark, cell.settings.benchmark, suites)
    return found


def _list_differing(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the files that are not the same."""
    return tuple(name for name in sorted({*then, *now}) if then.get(name) != now.get(name))
