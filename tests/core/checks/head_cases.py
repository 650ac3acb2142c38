"""What the check on the head refuses, and what it lets pass."""

from __future__ import annotations

from peagle_sm.core.heads.layout import HeadLook
from peagle_sm.core.words import Finding
from tests.core.checks.cases import Case
from tests.core.support import CONTAINER

_URI = "s3://bucket/head/"
_LOST = Finding("error", "d2t is missing", check="weights-missing")
_TOLD = Finding("info", "how many tokens it was trained to propose is not known", check="trained-k")

CASES = [
    Case(
        "head-whole",
        CONTAINER,
        fact=HeadLook(_URI, "files", (_LOST,)),
        severity="error",
        said="the head at s3://bucket/head/: d2t is missing",
    ),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", (_TOLD,))),
    Case("head-whole", CONTAINER, fact=HeadLook(_URI, "manifest", ())),
]
