"""A training plan's reservation."""

from __future__ import annotations

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight_facts import Reservation
from peagle_sm.core.errors import NotFound, ServiceFault
from peagle_sm.core.plan.resolve import Draft


def read(session: Session, draft: Draft | None) -> Reservation:
    """Describe the training plan that the spec names.

    Raises:
        CredentialsError: sagemaker:DescribeTrainingPlan is missing.
        ServiceFault: the ARN is not a training plan's, so it cannot be looked at by its name.
    """
    assert draft is not None
    arn = draft.spec.placement.capacity_reservation_arn or ""
    if ":training-plan/" not in arn:
        raise ServiceFault(f"{arn} is not the ARN of a training plan; other reservations cannot be described")
    try:
        with aws_errors("DescribeTrainingPlan", session.local_url):
            plan = session.client("sagemaker").describe_training_plan(TrainingPlanName=arn.rpartition("/")[2])
    except NotFound as error:
        return Reservation(arn, problem=error.message)
    rows = plan.get("ReservedCapacitySummaries") or ()
    return Reservation(
        arn=arn,
        status=plan.get("Status", ""),
        ends=plan.get("EndTime"),
        instance_types=tuple(dict.fromkeys(row["InstanceType"] for row in rows if "InstanceType" in row)),
        targets=tuple(plan.get("TargetResources") or ()),
        free=plan.get("AvailableInstanceCount"),
    )
