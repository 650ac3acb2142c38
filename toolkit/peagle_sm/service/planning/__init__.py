"""Before anything is created: plan, lock, preflight."""
