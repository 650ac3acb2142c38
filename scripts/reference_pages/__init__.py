"""Generators of the pages in docs/ that say what the code says: scripts/reference writes them."""
