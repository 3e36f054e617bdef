"""`GuardSpec`: a guard's YAML, its own virtual environment, and what makes it this guard and no other.

A guard changes with what is installed beside it, so its identity is the hash of every installed file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from venv import EnvBuilder

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from agentsys.errors import ConfigError, Unavailable, unknown_name
from agentsys.extensions import find_user_data_folder

_EXACT = r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?==[\w.!+-]+"
ExactPackage = Annotated[str, Field(pattern=f"^{_EXACT}$")]
"""`name==version`."""
Target = Annotated[str, Field(pattern=r"^([\w.]+:|\$)[\w.]+$")]
"""`module:function`, `module:Class.method`, or `$object.method` of an object made before."""
HERE = "here"
"""A guard of this installation: a control, with its YAML and our own code."""
PLACES = {"{text}", "{tool}", "{task}", "{args}"}
"""What a question fills in."""
ADAPTERS = Path(__file__).parent / "adapters"
"""Modules that a guard's Python finds besides its packages."""


class GuardStep(BaseModel):
    """One call into a guard's package."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call: Target
    give: list[Any] = []
    """Arguments; `{text}`, `{tool}`, `{args}`, `{task}` and `$object` stand for what they name."""
    named: dict[str, Any] = {}
    """Arguments by name."""


class GuardSpec(BaseModel):
    """A guard as its YAML describes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["text", "call", "command", "http"] = "text"
    """`text` reads what tools return; `call` rules on calls; `command` and `http` are texts judged elsewhere."""
    package: Annotated[str, Field(pattern=f"^(here|{_EXACT})$")] | None = None
    beside: tuple[ExactPackage, ...] = ()
    """Further packages in its environment."""
    python: str | None = None
    """Of a function of one's own: the Python that runs it; None: the current one."""
    yaml_folder: str | None = None
    """Folder of its YAML, in which a module of one's own and a command's files are; set when the YAML is read."""
    reads: tuple[str, ...] = ()
    """Further files and folders that it may read."""
    version: str | None = None
    """Of a `command` or `http` guard, which has no files to tell it by."""
    call: Target | None = None
    make: Target | None = None
    """`module:Class`, where a `method` of an object is called; `args` are the class's."""
    args: dict[str, Any] = {}
    method: str | None = None
    give: list[Any] = ["{text}"]
    named: dict[str, Any] = {}
    objects: dict[str, GuardStep] = {}
    """Of a gate: what is made afresh for each task, in order."""
    task: GuardStep | None = None
    """Of a gate: what it is told of the user's request."""
    observe: GuardStep | None = None
    """Of a gate: what it is told of a tool's result."""
    check: GuardStep | None = None
    """Of a gate: the question whether a call may run."""
    command: tuple[str, ...] = ()
    url: Annotated[str, Field(pattern="^https?://")] | None = None
    api_key_env: str | None = None
    flag: str | None = None
    """Path into the answer; without one the score decides."""
    flag_is: list[Any] | None = None
    """Values of it that flag; None: true, or a list that is not empty."""
    score: str | None = None
    threshold: float = Field(default=0.5, allow_inf_nan=False)
    clean: str | None = None
    """Path to the cleaned text."""
    on_flag: Literal["withhold", "clean", "abort"] = "withhold"
    unit: Literal["message", "field"] = "message"
    on_error: Literal["error", "fail_open", "fail_closed"] = "error"
    """A guard that crashed, hung or spoke nonsense: the case is errored, the text passes, or it is withheld."""
    partial: str | None = None
    """Path to the part of the text that it has read: a number of characters, or `[first, behind the last]`."""
    fresh: Literal["text", "case", "run"] | None = None
    """How long its objects live, of a command its process; None: a gate's for a case, a command's for a text, and
    all others for the run. A command that is to live longer gives each question's `id` back."""
    timeout_s: float = Field(default=10.0, gt=0, le=600)
    memory_mb: int = Field(default=4096, ge=16)
    """MiB for all its processes together."""
    processes: int = Field(default=64, ge=1)
    unconfined: bool = False
    """Whether it may run where the system has no way to shut it in."""
    control: bool = False
    """Whether it stands in tables as a rule to compare with and not as somebody's guard."""
    note: str = ""
    """What it does to its host, for tables."""

    @model_validator(mode="after")
    def _says_what_to_call(self) -> GuardSpec:
        ways = bool(self.call) + bool(self.make and self.method) + bool(self.check)
        if self.kind == "text" and ways != 1:
            raise ValueError("a guard of kind text needs call, or make and method, or check.")
        needs = {"call": "check", "command": "command", "http": "url"}.get(self.kind)
        if needs and not getattr(self, needs):
            raise ValueError(f"a guard of kind {self.kind} needs {needs}.")
        if self.package is not None and self.python is not None:
            raise ValueError("it has package, whose environment has a Python of its own: leave python out.")
        if self.beside and not self.requirements:
            raise ValueError(
                "beside is installed with a package, and it has none: give package, or leave it out."
            )
        # What fills no place would reach the guard as it stands, in place of every text.
        unknown = set(re.findall(r'"(\{\w+\})"', self.model_dump_json())) - PLACES
        if unknown:
            raise ValueError(unknown_name("place", min(unknown), PLACES))
        if self.flag is None and self.score is None:
            raise ValueError("say where its verdict stands: flag or score, a path into what it returns.")
        if self.on_flag == "clean" and self.clean is None:
            raise ValueError("on_flag=clean needs clean, the path of the cleaned text.")
        return self

    def describe_for_worker(self) -> dict[str, Any]:
        """Write the first message to `guard_worker`."""
        objects, call = dict(self.objects), self.call
        if self.make is not None:
            objects["guard"], call = GuardStep(call=self.make, named=self.args), f"$guard.{self.method}"
        check = GuardStep(call=call, give=self.give, named=self.named) if call else self.check
        steps = {"task": self.task, "observe": self.observe, "check": check}
        own = sys.path if self.package == HERE else []
        return {
            "objects": {name: step.model_dump() for name, step in objects.items()},
            "steps": {what: step.model_dump() for what, step in steps.items() if step},
            "verdict": self.model_dump(include={"flag", "flag_is", "score", "threshold", "clean", "partial"}),
            "fresh": self.lives,
            "paths": [str(ADAPTERS), *filter(None, own)] if self.package else [str(self.home)],
        }

    @property
    def home(self) -> Path:
        """Folder of its YAML."""
        return Path(self.yaml_folder or ".").resolve()

    @property
    def lives(self) -> str:
        """How long its objects live: `text`, `case` or `run`."""
        return self.fresh or {"call": "case", "command": "text"}.get(self.kind, "run")

    def find_command(self) -> tuple[str, ...]:
        """The command, whose words that name something beside the YAML are its path."""
        return tuple(str(self.home / word) if (self.home / word).is_file() else word for word in self.command)

    @property
    def requirements(self) -> tuple[str, ...]:
        """Requirements of its environment; empty if it has none of its own."""
        return () if self.package in (None, HERE) else (str(self.package), *self.beside)

    @property
    def folder(self) -> Path:
        """Folder of its environment, which guards of the same packages share."""
        text = "\n".join([*self.requirements, platform.python_version()])
        label = re.sub(r"[^\w.-]+", "-", str(self.package))
        return find_user_data_folder() / "guards" / f"{label}-{_hash_text(text)[:8]}"


def read_guard_spec(who: str, options: Mapping[str, Any]) -> GuardSpec:
    """Check a guard's YAML.

    Raises:
        ConfigError: Naming the option, what it holds and what it should hold.
    """
    try:
        return GuardSpec.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(f"guard {who}: {_describe_slip(error.errors()[0])}") from None


def _describe_slip(slip: Mapping[str, Any]) -> str:
    where = ".".join(map(str, slip["loc"]))
    wants = slip["msg"].replace("Input should", "it should").replace("tuple", "list")
    if slip["type"] == "extra_forbidden":
        return unknown_name("option", where, GuardSpec.model_fields)
    if slip["type"] == "value_error":
        return str(slip["ctx"]["error"])
    if slip["type"] == "string_pattern_mismatch":
        wants = _PATTERNS.get(slip["loc"][0], "give module:function")
    return f"{where} is {slip['input']!r}; {wants}."


_PATTERNS = {
    **dict.fromkeys(("package", "beside"), "give name==version"),
    "url": "give an address that begins with http:// or https://",
}


def find_guard_python(spec: GuardSpec) -> Path:
    """The Python that runs a guard.

    Raises:
        Unavailable: If it was not installed.
    """
    if spec.requirements and not (spec.folder / _READY).is_file():
        raise Unavailable(
            f"The guard {spec.package} is not installed here: agentsys guards add, with the name of its YAML.",
            needs=str(spec.package),
        )
    if spec.python is not None:
        return spec.home / Path(spec.python).expanduser()
    return spec.folder / "venv" / "bin" / "python" if spec.requirements else Path(sys.executable)


class PythonFacts(NamedTuple):
    """A Python, as it describes itself."""

    version: str
    folders: list[str]
    """What it and its packages lie in."""
    packages: list[str]
    """`name==version`, sorted."""


_DESCRIBE = """
import importlib.metadata as m, json, platform, sys
folders = [p for p in (sys.prefix, sys.base_prefix, sys.base_exec_prefix, *sys.path) if p]
packages = sorted({f"{d.name}=={d.version}" for d in m.distributions()})
print(json.dumps([platform.python_version(), folders, packages]))
"""


@lru_cache(maxsize=32)
def describe_python(python: Path) -> PythonFacts:
    """Ask a Python what it is.

    Raises:
        ConfigError: If it is none.
    """
    try:
        run = subprocess.run([python, "-I", "-c", _DESCRIBE], capture_output=True, timeout=60, check=True)
        return TypeAdapter(PythonFacts).validate_json(run.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError) as error:
        raise ConfigError(f"python: {python} is no Python that runs: {str(error)[:200]}.") from None


def list_readable_paths(spec: GuardSpec) -> list[str]:
    """Files and folders that a guard has to read, besides those of the system."""
    if spec.package == HERE:
        own = [path for path in (sys.prefix, *sys.path) if path]
    elif spec.requirements:
        own = [str(spec.folder / "venv"), str(ADAPTERS)]
    else:
        own = [*describe_python(find_guard_python(spec)).folders, *filter(None, [spec.yaml_folder])]
        own += [word for word in spec.find_command() if Path(word).is_absolute()]
    return [*own, *(str(Path(path).expanduser()) for path in spec.reads)]


_SESSION = uuid.uuid4().hex
_READY = "installed"
"""Marks an environment that is whole."""
_OF_THE_INSTALLER = {"INSTALLER", "REQUESTED", "RECORD"}


def install_guard(spec: GuardSpec, wheels: Path | None = None) -> None:
    """Make a guard's environment; nothing is done where it stands.

    Args:
        spec: The guard.
        wheels: Folder to take packages from, and from nowhere else; None: the package index.

    Raises:
        ConfigError: If it cannot be installed.
    """
    folder = spec.folder
    if not spec.requirements or (folder / _READY).is_file():
        return
    EnvBuilder(clear=True, symlinks=True).create(folder / "venv")
    # Wheels only: a source distribution would run its own code here, with this user's rights.
    # An environment that uv made has no pip; the Python that it was made from has.
    python = sys.executable if find_spec("pip") else str(Path(sys.base_prefix) / "bin" / "python3")
    pip = [python, "-m", "pip", f"--python={folder / 'venv'}"]
    command = [*pip, "install", "--only-binary=:all:", *spec.requirements]
    command += ["--no-index", "--find-links", str(wheels.resolve())] if wheels else []
    # What stands in a PYTHONPATH would be taken for installed.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if run.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        why = " ".join(run.stderr.split())[-400:] or "no reason given"
        raise ConfigError(f"pip could not install {spec.package}: {why}")
    (folder / _READY).touch()


def hash_guard(spec: GuardSpec) -> str:
    """Hash what a guard consists of, its YAML apart: all installed files, or the code beside it and its packages.

    What has no files and no declared version gets a hash of its own in every process: nothing that it said is
    ever taken for what it would say.
    """
    if spec.package == HERE:
        from agentsys.runs.store import hash_package_files

        return _hash_text(json.dumps(dict(hash_package_files())))
    if spec.kind in ("command", "http"):
        return spec.version or _SESSION
    python, code = find_guard_python(spec), "*"
    folders, more = [*(spec.folder / "venv" / "lib").glob("python*/site-packages")], list[str]()
    if spec.requirements:
        adapters = {ADAPTERS / f"{step.call.partition(':')[0]}.py" for step in spec.objects.values()}
        more = [_hash_file(path) for path in adapters if path.is_file()]
    else:
        folders, code, more = [spec.home], "*.py", describe_python(python).packages
    lines = [
        f"{path.relative_to(folder)} {_hash_file(path)}"
        for folder in folders
        for path in sorted(folder.rglob(code))
        if "__pycache__" not in path.parts and path.name not in _OF_THE_INSTALLER and path.is_file()
    ]
    return _hash_text("\n".join([*lines, *more]))


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class GuardIdentity(NamedTuple):
    """Identity of the guard that gave a verdict."""

    name: str
    package: str = ""
    files: str = ""
    """Hash of all installed files, or the declared version."""
    python: str = ""
    yaml: str = ""
    """Hash of the YAML."""


def identify_guard(name: str, spec: GuardSpec) -> GuardIdentity:
    """Identify a guard, for records and tables."""
    options = spec.model_dump(mode="json", exclude={"yaml_folder"}, exclude_defaults=True)
    yaml = _hash_text(json.dumps(options, sort_keys=True))
    version, package = platform.python_version(), spec.package or spec.version or "no version"
    if spec.kind in ("text", "call") and spec.package is None:
        package = f"own code, {spec.python or 'current Python'}"
        version = describe_python(find_guard_python(spec)).version
    return GuardIdentity(name, package, hash_guard(spec), version, yaml)
