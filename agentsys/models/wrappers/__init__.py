"""Wrappers: chat models around a chat model, put together in `agentsys.models.build_model`."""
