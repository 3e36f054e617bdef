"""`evolve`: a search that keeps the best text of every kind and goes on from these.

`strategies` says what kinds there are, `archive` keeps the best of each and draws what to try next,
`mutator` asks the attacker for it, `attack` makes the attempts.
"""
