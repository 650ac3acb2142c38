"""What exists: lists, statuses, logs, and what belongs to whom."""
