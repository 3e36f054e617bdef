"""Runs: plan -> execute -> store. Knows benchmarks, attacks, models and any `Defense`; no tables.

`compose` turns Hydra overrides into settings, `plan` settings into cases; `executors` and `run_case` run the cases,
`build_record` turns their results into records, and `store` writes records to files.
"""
