"""Gate in front of the engine, inside the container: limits, health, draining, acceptance check.

`asgi.Gate` is a middleware that vLLM loads itself (``--middleware``), so there is no second process and no
second copy of a stream. Standard library only; all but `asgi` and `canary` is pure.
"""
