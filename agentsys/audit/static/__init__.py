"""The audit of a benchmark by itself: its data and its checks, without a model.

`checks` holds the questions put to one task, `unstable_checks` and `mutations` the two long ones; `audit`
asks them of every task, `rows` is what it finds, and the other files put that into words, grids and JSON.
"""
