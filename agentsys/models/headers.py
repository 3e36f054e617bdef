"""HTTP headers that our own served model understands. Sent only where a model's YAML says `send_role: true`."""

ROLE_HEADER = "X-Agentsys-Role"
"""Carries `ChatRequest.role`, so that a served simulated model can play the role. Never prompt text."""
