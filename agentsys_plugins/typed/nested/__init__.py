"""Ten tools of mail and calendar servers whose arguments are objects, and tasks that need them: one AgentDojo suite."""
