"""What went wrong in a world and what was wasted, the rules that others publish, and the report."""
