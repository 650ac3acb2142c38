"""Measurements under loads that change: traces, and K by load of one machine kind."""
