"""FIDES (Costa et al., arXiv 2505.23643): a tool loop in which messages, arguments and results have labels.

`agent` is the loop, `variables` hides values and puts them back, `suite_rules` says what others can write and
who may read it, `call_policy` judges calls, `own_tools` asks and shows. Labels are those of `baselines.flow`.
Decisions and departures from the article stand in docs/baselines/fides.md.
"""

from baselines.fides.defense import Fides

__all__ = ["Fides"]
