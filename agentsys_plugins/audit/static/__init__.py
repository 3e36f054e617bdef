"""The audit of a benchmark by itself: its data and its checks, without a model.

`task_checks` and `mutations` hold the questions put to one task (`audited_task`); `static_audit` asks them
of every task and has what it finds as rows, also as JSON; `static_document` has the same in words and grids.
"""

from __future__ import annotations
