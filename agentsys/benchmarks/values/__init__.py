"""Planted values: AgentDojo's suites with injections that are data and no instruction.

`data/plants.yaml` says which value stands where, `planted` reads it and makes injection tasks of it,
`benchmark` puts them into AgentDojo's suites. No filter for instructions can find such a text: it has none.
"""
