"""The pure core: specs, catalogue, plans and checks, with no I/O beyond its own packaged data."""
