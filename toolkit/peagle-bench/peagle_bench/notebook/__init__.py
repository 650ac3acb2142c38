"""Measuring from Python or a notebook: bench(), compare(), tune(), verify() and report().

Each call does the same as the command of its name, writes the same results file, and returns a typed result
that a notebook displays. They also work inside a running event loop, as in Jupyter (`endpoints.blocking`).
"""

from __future__ import annotations
