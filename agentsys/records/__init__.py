"""Records: a stored case in every form it comes in - its key, its schema, who wrote it, how it is read."""
