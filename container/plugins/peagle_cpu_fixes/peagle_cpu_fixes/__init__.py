"""Repairs of vLLM's CPU platform that speculative decoding needs, as a vLLM plugin.

``hooks`` makes sampling right and lets the engine core be a fork; ``layers`` and ``kernels`` take from each
step what a GPU does not have (Python between kernels, the search for a kernel's arguments). None of them
changes a greedy answer, and all modes (no speculation, EAGLE-3, P-EAGLE) go through the same ones.
"""


def register() -> None:
    """Apply the repairs; called by vLLM in each of its processes, possibly more than once."""
    from . import hooks

    hooks.install()
