"""What stands around the commands: the overview, examples in helps, and what the shell completes."""
