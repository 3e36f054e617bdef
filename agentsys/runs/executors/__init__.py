"""Executors: who runs a plan's cases. Threads of this process, processes of this machine, or a Ray cluster.

All of them run a case by the same function and count what came of it in the same tally; they differ in where
the threads are, and in how a case gets there.
"""
