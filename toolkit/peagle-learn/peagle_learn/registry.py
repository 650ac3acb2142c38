"""A promotion in the Model Registry: a version of the head that serves, and its status after a rollback.

It decorates a promotion that is done. So nothing here fails one: what SageMaker refuses is reported, with
the command that registers it later.
"""

from __future__ import annotations

from typing import Any

from peagle_sm.aws.session.errors import is_taken
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PeagleError, ServiceFault
from peagle_sm.service.progress import Event, Progress

DESCRIPTION = "Draft heads that peagle-sm learn promoted"
_REJECTED = "peagle-sm learn rollback: the head before serves again"


def register(request: dict[str, Any], session: Session, progress: Progress) -> str | None:
    """Create the version, and its group if it does not exist; return the version's ARN.

    None: SageMaker refused, and the progress says why and what to do. The same request gives the same
    version.
    """
    group = request["ModelPackageGroupName"]
    again = f"peagle-sm learn promote --model-package-group {group}{session.command_flags()}"
    try:
        if not group.startswith("arn:"):  # a group of another account is that account's to create
            _ensure_group(group, session)
        made = session.api("sagemaker").create_model_package(**request)
    except PeagleError as error:
        progress(
            Event(
                "check",
                f"the head serves, and is not registered in model package group {group}:"
                f" {_reason(error)} run `{again}`: it only registers.",
            )
        )
        return None
    arn = str(made["ModelPackageArn"])
    progress(Event("check", f"registered as {arn.partition(':model-package/')[2]}", resource=arn))
    return arn


def _ensure_group(group: str, session: Session) -> None:
    sagemaker = session.api("sagemaker")
    if sagemaker.find("describe_model_package_group", ModelPackageGroupName=group) is not None:
        return
    try:
        sagemaker.create_model_package_group(
            ModelPackageGroupName=group, ModelPackageGroupDescription=DESCRIPTION
        )
    except ServiceFault as error:
        if not is_taken(error):  # another promotion created it meanwhile
            raise


def reject(arns: tuple[str, ...], session: Session, progress: Progress) -> None:
    """Set the versions of a head that was taken back to Rejected, so that no pipeline deploys them."""
    for arn in arns:
        name = arn.partition(":model-package/")[2]
        try:
            session.api("sagemaker").update_model_package(
                ModelPackageArn=arn, ModelApprovalStatus="Rejected", ApprovalDescription=_REJECTED
            )
        except PeagleError as error:
            command = "aws sagemaker update-model-package --model-approval-status Rejected"
            progress(
                Event(
                    "check",
                    f"the rollback is done, and version {name} is still Approved: {_reason(error)} run"
                    f" `{command} --model-package-arn {arn}`.",
                )
            )
        else:
            progress(Event("check", f"version {name} is now Rejected", resource=arn))


def _reason(error: PeagleError) -> str:
    """Return why, and the first words of the next step."""
    ask = "Ask for this permission, and then" if isinstance(error, CredentialsError) else "Next:"
    return f"{error.message.rstrip('.')}. {ask}"
