"""What a run keeps beside its records so that somebody else can make them again: recipes and code states."""
