"""Who calls, how far this machine's clock is off, and what has the endpoint's name."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight_facts import Identity, Taken
from peagle_sm.core.errors import CredentialsError
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.plan.tags import MANAGED_BY, MANAGER, STACK


def read(session: Session, _: Draft | None) -> Identity:
    """Ask STS who calls; its answer's Date header tells AWS's clock.

    Raises:
        ServiceFault: no answer.
    """
    before = session.wall_clock()
    try:
        with aws_errors("GetCallerIdentity", session.local_url):
            answer = session.client("sts").get_caller_identity()
    except CredentialsError as error:
        return Identity(problem=error.message, next_step=error.next_step or "")
    after = session.wall_clock()
    sent = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    skew = None
    # The local SageMaker dates its answers by its own clock, which `local clock advance` moves on purpose.
    if sent and not session.is_local:
        # The header has whole seconds, and was written somewhere between the two readings.
        here = before + (after - before) / 2
        skew = (here - parsedate_to_datetime(sent)).total_seconds()
    return Identity(str(answer["Account"]), str(answer["Arn"]), skew_s=skew)


def taken(session: Session, draft: Draft | None) -> Taken:
    """Look what has the endpoint's name."""
    assert draft is not None
    found = control.describe_endpoint(session, draft.spec.name)
    if found is None:
        return Taken()
    tags = control.tags_of(session, found.arn) or {}
    return Taken(found.status, tags.get(MANAGED_BY) == MANAGER, tags.get(STACK) or None)
