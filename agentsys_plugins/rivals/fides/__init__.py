"""FIDES (Costa et al., arXiv 2505.23643): a tool loop in which messages, arguments and results have labels.

`fides_agent` is the loop, `hidden_values` hides values and puts them back, `fides_policy` labels results and
judges calls. Labels are those of `baselines.flow`.
Decisions and departures from the article stand in docs/baselines/fides.md.
"""
