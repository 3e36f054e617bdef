"""HTTP headers our own served model understands; sent only where a model's YAML says `send_role: true`."""

ROLE_HEADER = "X-Agentsys-Role"
"""Carries `ChatRequest.role`, so that a served simulated model can play the role. Never prompt text."""
