"""Results files: their records, how they are read and written, and where the numbers come from."""
