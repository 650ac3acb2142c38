"""What a model on the hub, and one of its states, may be called. Pure."""

from __future__ import annotations

import re

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
"""The one name of a revision that does not move."""
