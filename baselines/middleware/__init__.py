"""Old home of `agentsys_plugins.vectors.middleware`; its public names can still be imported from here."""

from agentsys.base.moved_names import forward_names

__getattr__ = forward_names(__name__, "agentsys_plugins.vectors.middleware")
