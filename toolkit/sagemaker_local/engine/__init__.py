"""The engines: their environment, and the real vLLM as a process that stands in for a container."""
