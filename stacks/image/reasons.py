"""Why each finding of cdk-nag on PeagleImage that remains is right; tests hold that there is no other."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stack, Validations

REASONS: dict[str, dict[str, str]] = {
    "BuildRole": {
        "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "AWS knows no resource for "
        "ecr:GetAuthorizationToken, the one call allowed on all.",
        "AwsSolutions::AwsSolutions-IAM5[Resource::<Records.Arn>/builds/*]": "CodeBuild names each build's "
        "folder by an id of its own; it may write below builds/ and neither read nor delete there.",
    },
    "Records": {
        "AwsSolutions::AwsSolutions-S1": "It holds lists of packages and digests, written by one role. A log "
        "of who read them would need a second bucket; CloudTrail's data events tell it where that is wanted.",
    },
}


def acknowledge(stack: Stack) -> None:
    """Attach each reason to the resource that it is about."""
    for construct_id, findings in REASONS.items():
        resource = stack.node.find_child(construct_id)
        for finding, reason in findings.items():
            Validations.of(resource).acknowledge(Acknowledgment(id=finding, reason=reason))
