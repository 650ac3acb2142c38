"""Reads what is known of the draft head that the spec names."""

from __future__ import annotations

from peagle_sm.aws.readers.head_look import look_at_head
from peagle_sm.aws.session.session import Session
from peagle_sm.core.heads.fault import HeadLook
from peagle_sm.core.plan.resolve import Draft


def read(session: Session, draft: Draft | None) -> HeadLook | None:
    """Look at the head; errors as `look_at_head`."""
    return None if draft is None else look_at_head(session, draft)
