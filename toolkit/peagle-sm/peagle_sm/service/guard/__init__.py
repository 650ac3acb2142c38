"""The guard: its installation and status, and `keep`."""
