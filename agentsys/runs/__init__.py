"""Runs: plan -> execute -> store. Knows benchmarks, attacks, models and any `Defense`; no tables.

`case` and `record` are what is planned and what is kept; `compose` turns Hydra overrides into
settings, `plan` settings into cases, `execute` cases into records, `store` records into files.
"""
