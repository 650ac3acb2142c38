"""The package's own functions, for notebooks and programs."""
