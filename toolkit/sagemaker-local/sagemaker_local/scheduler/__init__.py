"""EventBridge Scheduler on the local clock."""
