"""Repairs of vLLM's CPU platform that speculative decoding needs, as a vLLM plugin."""


def register() -> None:
    """Apply the repairs; called by vLLM in each of its processes, possibly more than once."""
    from .sampling import repair

    repair()
