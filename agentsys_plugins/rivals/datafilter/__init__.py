"""DataFilter: a small fine-tuned model writes the data again, without instructions that were planted in them.

Rebuilt from the public repository yizhu-joy/DataFilter (arXiv 2510.19207). The model is served anywhere and
named under `roles: {datafilter: NAME}` of the agent's model. Departures: docs/baselines/datafilter.md.
"""

from agentsys_plugins.rivals.datafilter.defense import DataFilter

__all__ = ["DataFilter"]
