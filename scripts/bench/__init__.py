"""Benchmarks of our own parts, and the pages of figures in docs/. Not in the wheel."""
