"""bench(), compare(), tune(), verify() and report(): measuring as calls from a program or a notebook.

Each does what the command of its name does, writes the same results file, and returns a typed result that a
notebook shows. They may be called where an event loop runs already, as in Jupyter (`endpoints.blocking`).
"""

from __future__ import annotations
