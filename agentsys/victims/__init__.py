"""Victims: profiles fitted to published runs of real models, validated on runs they were not fitted to.

What lives here: reading how a model behaved case by case (`behaviour`), the statistical model
(`mixed_logit`, `blocks`), the profile it becomes (`fit`), its validation and forecasts (`folds`, `forecast`).
The simulated model draws from a finished profile and imports nothing of this
(agentsys.models.simulated.victim).
"""
