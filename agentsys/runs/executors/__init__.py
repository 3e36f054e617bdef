"""Executors: who runs a plan's cases. Threads of this process, or the same command on each node of Ray's."""
