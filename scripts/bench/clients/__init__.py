"""Our load client beside others, against a server that knows what it sent: scripts/bench-clients."""
