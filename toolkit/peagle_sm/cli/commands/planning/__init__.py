"""Commands before an endpoint exists: models, heads, specs, plans, locks and checks."""
