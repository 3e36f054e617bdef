"""`RemoteShards`: the shards of a log folder at a URL that fsspec knows (`s3://`, `gs://`, `file://`).

Runs write to their own disk and send what they wrote; readers fetch what they do not have. A process sends
its own shards alone, and they only grow, so that several machines may send to one URL.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from agentsys.atomic_file import write_atomically
from agentsys.errors import ConfigError
from agentsys.extras import not_installed
from agentsys.records.shards.shard_folder import INDEX, SHARDS

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SENT = (SHARDS, Path(".agentsys", "configs"), Path(".agentsys", "plans"))
"""Folders of a log folder that are sent and fetched: records, their settings, and what was planned."""
_EVERY_S = 30.0
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)")

_log = logging.getLogger(__name__)


class RemoteShards:
    """A log folder's shards at a URL.

    Args:
        url: The folder's URL; credentials come from the environment, as its file system expects them.
        logdir: The log folder here.

    Raises:
        ConfigError: If the URL cannot be used or holds a password.
        Unavailable: If the package for its file system is not installed.
    """

    def __init__(self, url: str, logdir: Path) -> None:
        self.url, self._logdir = url, logdir
        self._files, self._root = _opened(url)

    def fetch(self) -> int:
        """Fetch what is there and not here; files that grew there are fetched anew.

        Returns:
            How many files came.

        Raises:
            ConfigError: If the URL cannot be read.
        """
        with self._told("read"):
            found = [(folder, path, size) for folder in _SENT for path, size in self._there(folder).items()]
            new = [one for one in found if _size(self._here(*one[:2])) < one[2]]
            # An index before its shard: it names no record that the shard fetched after it lacks.
            for folder, path, _ in sorted(new, key=lambda one: not one[1].endswith(INDEX)):
                data: bytes = self._files.cat_file(f"{self._root}/{folder.as_posix()}/{path}")
                write_atomically(self._here(folder, path), data, durable=False)
        return len(new)

    def send(self) -> int:
        """Send what is here and not there, or has grown since.

        Returns:
            How many files went.

        Raises:
            ConfigError: If the URL cannot be written.
        """
        sent = 0
        with self._told("write to"):
            for folder in _SENT:
                there = self._there(folder)
                here = [path for path in (self._logdir / folder).glob("*") if path.suffix in _ENDINGS]
                new = [path for path in here if there.get(path.name, -1) < path.stat().st_size]
                # Read before its shard and sent after it, for the same reason.
                indexes = {path: path.read_bytes() for path in new if path.suffix == INDEX}
                for path in new:
                    if path not in indexes:
                        self._put(folder, path.name, path.read_bytes())
                for path, data in indexes.items():
                    self._put(folder, path.name, data)
                sent += len(new)
        return sent

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send now and then while the block runs, and once more at its end.

        Raises:
            ConfigError: If the last sending fails; earlier ones are tried again.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._keep_sending, args=[ended.wait], name="sender", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.send()

    def _keep_sending(self, wait: Callable[[float], bool]) -> None:
        while not wait(_EVERY_S):
            try:
                self.send()
            except ConfigError as error:
                _log.warning("%s It is tried again.", error)

    def _there(self, folder: Path) -> dict[str, int]:
        """Name -> size of the files in a folder there."""
        place = f"{self._root}/{folder.as_posix()}"
        self._files.invalidate_cache(place)
        try:
            listed: list[dict[str, Any]] = self._files.ls(place, detail=True)
        except FileNotFoundError:
            return {}
        files = (one for one in listed if one["type"] == "file")
        names = {str(one["name"]).rpartition("/")[2]: int(one["size"] or 0) for one in files}
        # A name from there must not lead out of the folder here.
        return {name: size for name, size in names.items() if _NAME.fullmatch(name)}

    def _put(self, folder: Path, name: str, data: bytes) -> None:
        place = f"{self._root}/{folder.as_posix()}"
        self._files.makedirs(place, exist_ok=True)
        self._files.pipe_file(f"{place}/{name}", data)

    def _here(self, folder: Path, name: str) -> Path:
        return self._logdir / folder / name

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise ConfigError(
                f"Cannot {what} {self.url} ({said}). Records stay in {self._logdir}: "
                "give the same command again."
            ) from None


_ENDINGS = {".gz", INDEX, ".config", ".plan"}
_NAME = re.compile(r"[\w-][\w.-]*\.(?:jsonl\.gz|index|config|plan)")


def mirror_of(path: Path) -> Path | None:
    """The folder here that stands for a URL given as a path; fetched now. None for what is no URL.

    Raises:
        ConfigError: If it cannot be read.
    """
    found = _URL.fullmatch(str(path))
    if found is None or path.exists():
        return None
    url = f"{found[1]}:{'///' if found[1] == 'file' else '//'}{found[2]}"  # `Path` makes one slash of them
    folder = user_cache_path("agentsys") / "stores" / hashlib.sha256(url.encode()).hexdigest()[:16]
    remote = RemoteShards(url, folder)
    remote.fetch()
    if not (folder / SHARDS).is_dir():
        raise ConfigError(f"{url} holds no shards. Give the URL that a run sent them to (store_url=...).")
    return folder


def _opened(url: str) -> tuple[AbstractFileSystem, str]:
    if "://" not in url:
        raise ConfigError(f"'{url}' is no URL; write e.g. s3://bucket/folder, gs://... or file:///...")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("A URL with a password would end in logs: give credentials by the environment.")
    scheme = f"{url.partition(':')[0]}://"
    if find_spec("fsspec") is None:
        raise not_installed(scheme, ["fsspec"], "cloud")
    from fsspec.core import url_to_fs

    try:
        files, root = url_to_fs(url)
    except ImportError as error:
        raise not_installed(scheme, [str(error.name or "its file system")], "cloud") from None
    except ValueError as error:
        raise ConfigError(f"Cannot use {url}: {error}.") from None
    return files, str(root).rstrip("/")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1
