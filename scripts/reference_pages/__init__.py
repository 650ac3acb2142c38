"""Generators of the pages in docs/ that are made from the code; scripts/reference writes them."""
