"""Statistics: rates with intervals, and differences between them, on grids of user and injection tasks."""
