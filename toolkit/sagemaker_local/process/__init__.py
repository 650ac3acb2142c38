"""A server as a process: started, written down, asked over HTTP, and ended with all that it started."""
