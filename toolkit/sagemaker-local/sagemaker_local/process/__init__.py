"""A server as a process: start, state files, HTTP client, and shutdown with all child processes."""
