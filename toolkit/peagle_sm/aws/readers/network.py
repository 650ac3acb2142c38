"""The VPC's subnets and security groups."""

from __future__ import annotations

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight_facts import Network
from peagle_sm.core.plan.resolve import Draft


def read(session: Session, draft: Draft | None) -> Network:
    """Look for the spec's subnets and security groups; those that are not there are left out.

    Raises:
        CredentialsError: a permission is missing.
    """
    assert draft is not None
    wanted = draft.spec.security.vpc
    if wanted is None:
        return Network()
    ec2 = session.client("ec2")
    # A filter leaves out what is not there; asked for by id, one missing id would fail the whole call.
    with aws_errors("DescribeSubnets", session.local_url):
        subnets = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": wanted.subnet_ids}])
    with aws_errors("DescribeSecurityGroups", session.local_url):
        groups = ec2.describe_security_groups(
            Filters=[{"Name": "group-id", "Values": wanted.security_group_ids}]
        )
    return Network(
        subnets={
            row["SubnetId"]: (row["AvailabilityZone"], row["AvailableIpAddressCount"])
            for row in subnets["Subnets"]
        },
        security_groups=tuple(row["GroupId"] for row in groups["SecurityGroups"]),
    )
