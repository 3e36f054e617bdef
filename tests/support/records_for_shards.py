"""Records of ours for tests of shards: made by the simulated model once, then written under many names."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from agentsys.records.shards.shard_line import ShardLine
from agentsys.records.shards.shard_writer import ShardWriter


def line(number: int, text: str = "", status: str = "ok") -> ShardLine:
    """A line of a record that is told by its number; its file is not JSON."""
    key = f"m__none__b-v1/suite/user_task_{number // 10}/direct/injection_task_{number % 10}.json"
    return ShardLine(
        key=key,
        written_ns=time.time_ns(),
        status=status,
        config_hash="c0",
        file=text or f"record {number}\n" * 50,
    )


def write_for_ever(logdir: Path) -> None:
    """Append records from three threads, and print the number of each one that is on the disk."""
    from concurrent.futures import ThreadPoolExecutor

    writer = ShardWriter(logdir)

    def append(number: int) -> None:
        writer.append([line(number)])
        os.write(1, b"%d\n" % number)

    with ThreadPoolExecutor(3) as pool:
        for _ in pool.map(append, range(1_000_000)):
            pass


if __name__ == "__main__":
    write_for_ever(Path(sys.argv[1]))
