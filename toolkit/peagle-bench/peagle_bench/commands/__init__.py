"""Commands that measure endpoints and report the results."""
