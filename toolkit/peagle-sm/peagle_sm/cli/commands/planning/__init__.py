"""Commands used before a deploy: models, heads, specs, plans, locks and checks."""
