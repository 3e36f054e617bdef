"""Runs: plan -> execute -> store. Knows benchmarks, attacks, models and any `Defense`; no tables.

`compose` turns Hydra overrides into settings, `plan` settings into cases, `executors` and `run_case` cases
into what happened in them, `build_record` that into records, `store` records into files.
"""
