"""The command `agentsys cache`: replies of models that were kept, counted, as one file, and back."""
