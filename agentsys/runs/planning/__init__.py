"""Planning: the pairs of tasks an attack applies to, and the cases they make, one at a time."""
