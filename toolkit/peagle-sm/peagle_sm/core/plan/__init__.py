"""Plans: the exact requests of a spec, with price, memory fit and findings."""
