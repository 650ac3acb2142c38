"""The engines: their environment, and the real vLLM as a process instead of a container."""
