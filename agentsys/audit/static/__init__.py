"""The audit of a benchmark by itself: its data and its checks, without a model.

`task_checks` and `mutations` hold the questions put to one task (`audited_task`); `static_audit` asks them
of every task; `static_rows` is what it finds, also as JSON, `static_document` the same in words and grids.
"""

from __future__ import annotations
