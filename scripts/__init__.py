"""The repository's own tools. They are never part of the wheel, and nothing of the product imports them."""
