"""Repairs of vLLM's CPU platform that speculative decoding needs, as a vLLM plugin.

``hooks`` makes sampling right; ``kernels`` makes a token's logits independent of how many are computed beside
it, and connects the CPU kernels of vLLM 0.30; ``synthetic`` adds synthetic acceptance.
"""


def register() -> None:
    """Apply the repairs; called by vLLM in each of its processes, possibly more than once."""
    from . import hooks

    hooks.install()
