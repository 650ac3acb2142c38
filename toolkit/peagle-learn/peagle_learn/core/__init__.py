"""Learning: the spec, the recipes, the memory, the price and the plan of a head's training."""
