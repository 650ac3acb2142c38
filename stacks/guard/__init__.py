"""Stack of the guard, one per account and region, which turns off unused endpoints."""
