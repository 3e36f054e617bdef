"""How the simulated model plays the roles of AgentSys."""
