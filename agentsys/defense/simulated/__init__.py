"""The simulated model's play of AgentSys's roles."""
