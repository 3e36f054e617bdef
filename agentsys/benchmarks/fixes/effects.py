"""Effects of a run: the objects whose ids were not in the environment before.

Environments are typed by the suite; fixes ask only for parts that the suites they name have.
"""

from __future__ import annotations

from typing import Any


def new_transactions(before: Any, after: Any) -> list[Any]:
    """Banking: payments made, in order."""
    known = {payment.id for payment in before.bank_account.transactions}
    return [payment for payment in after.bank_account.transactions if payment.id not in known]


def new_schedules(before: Any, after: Any) -> list[Any]:
    """Banking: scheduled payments set up, in order."""
    known = {payment.id for payment in before.bank_account.scheduled_transactions}
    return [payment for payment in after.bank_account.scheduled_transactions if payment.id not in known]


def new_mails(before: Any, after: Any) -> dict[str, Any]:
    """Workspace, Travel: id -> mail that was sent, in order."""
    return _new_items(before.inbox.emails, after.inbox.emails)


def new_events(before: Any, after: Any) -> dict[str, Any]:
    """Workspace, Travel: id -> calendar event that was created."""
    return _new_items(before.calendar.events, after.calendar.events)


def new_files(before: Any, after: Any) -> dict[str, Any]:
    """Workspace: id -> file that was created."""
    return _new_items(before.cloud_drive.files, after.cloud_drive.files)


def _new_items(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if key not in before}
