"""Pure core: specs, catalogue, plans and checks; I/O only for packaged data."""
