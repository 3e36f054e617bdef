"""`numbers`: tasks named by their numbers, shortly: `0, 2-4`."""

from __future__ import annotations

from collections.abc import Iterable


def format_task_numbers(tasks: Iterable[str]) -> str:
    """The numbers of some tasks of one kind; three or more in a row become a range.

    Args:
        tasks: Ids such as `user_task_7`. One that does not end in a number is given whole, after them.

    Returns:
        E.g. `5, 6, 8-10`; `none` for no tasks.
    """
    ids = list(tasks)
    tails = [task.rpartition("_")[2] for task in ids]
    known = sorted({int(tail) for tail in tails if tail.isdecimal()})
    named = [task for task, tail in zip(ids, tails, strict=True) if not tail.isdecimal()]
    return ", ".join([*_format_ranges(known), *named]) or "none"


def _format_ranges(known: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in known:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [part for run in runs for part in _format_run(run)]


def _format_run(run: list[int]) -> list[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
