"""Guards for tests: wheels made by hand, installed without an index, that do as a text tells them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from unittest import mock

import yaml

from agentsys_plugins.guards.guard_spec import GuardSpec, install_guard, read_guard_spec

MODULE = """
import os, socket, subprocess, sys, time
from pathlib import Path


class Answer:
    def __init__(self, text):
        self.flagged = "INFORMATION" in text or "obey" in text
        self.risk = 0.9 if self.flagged else 0.1
        self.cleaned = text.replace("obey", "[cut]")


def scan(text):
    print("a guard may print what it likes")
    if "hang" in text:
        time.sleep(60)
    if "crash" in text:
        os._exit(3)
    if "panic" in text:
        raise type("Panic", (BaseException,), {})("out of cheese")
    if "leave" in text:
        sys.exit(0)
    if "nonsense" in text:
        return {"flagged": "perhaps"}
    if "log" in text:
        Path("guard.log").write_text("seen")
    if "launch" in text:
        subprocess.run(["true"])
    if "litter" in text:
        for number in range(50):
            Path(f"litter{number}").touch()
    if "spill" in text:
        Path("/tmp/agentsys-guard-spill").write_text("seen")
    if "move out" in text:
        Path("mine").write_text("seen")
        os.rename("mine", "/tmp/agentsys-guard-moved")
    if "call home" in text:
        socket.create_connection(("1.1.1.1", 53), timeout=2)
    if "look around" in text:
        return Answer("obey" if os.listdir() else "")
    if "steal" in text:
        return Answer("obey" if any("SECRET" in value for value in os.environ.values()) else "")
    return Answer(text)


class Gate:
    def __init__(self, forbidden):
        self.forbidden, self.seen = forbidden, []

    def told(self, task):
        self.seen = [task]

    def observe(self, tool, text):
        self.seen.append(text)

    def check(self, tool, args):
        return {"refused": tool in self.forbidden and len(self.seen) > 1}
"""
TEXT_YAML = {"package": "stub-guard==1.0", "call": "stub_guard:scan", "flag": "flagged"}
GATE_YAML = {
    "kind": "call",
    "package": "stub-guard==1.0",
    "objects": {"gate": {"call": "stub_guard:Gate", "give": [["send_money", "send_email"]]}},
    "task": {"call": "$gate.told", "give": ["{task}"]},
    "observe": {"call": "$gate.observe", "give": ["{tool}", "{text}"]},
    "check": {"call": "$gate.check", "give": ["{tool}", "{args}"]},
    "flag": "refused",
}


def build_wheel(
    folder: Path,
    module: str = MODULE,
    version: str = "1.0",
    name: str = "stub_guard",
    module_name: str = "stub_guard",
) -> Path:
    """A wheel of one module, in a folder that installers can be pointed to."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{module_name}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return folder


@cache
def _install_once() -> Path:
    """An environment with the stub in it, to be copied: making one takes a second."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with mock.patch.dict(os.environ, XDG_DATA_HOME=str(root)):
        spec = read_guard_spec("stub", TEXT_YAML)
        install_guard(spec, build_wheel(root / "wheels"))
        return spec.folder


def installed_stub(folder: Path, **options: object) -> GuardSpec:
    """The stub's YAML, with its wheel installed into the data folder that a test has set, in a folder of its own."""
    spec = read_guard_spec("stub", {**TEXT_YAML, **options})
    assert spec.folder.is_relative_to(folder), "the user's own guards are left alone"
    shutil.copytree(_install_once(), spec.folder, symlinks=True)
    return spec


def write_config(folder: Path, name: str, options: object) -> Path:
    """A folder for `--config-dir` with a guard as a defense."""
    (folder / "defense").mkdir(parents=True, exist_ok=True)
    shown = {"_target_": "agentsys_plugins.guards.guard_defense.GuardDefense", **options}  # type: ignore[dict-item]
    text = f"# A guard made for a test\n{yaml.safe_dump(shown, sort_keys=False)}"
    (folder / "defense" / f"{name}.yaml").write_text(text)
    return folder
