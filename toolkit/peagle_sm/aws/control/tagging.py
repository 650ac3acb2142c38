"""The Resource Groups Tagging API: resources by their tags, of every kind in one call a page."""

from __future__ import annotations

from collections.abc import Mapping

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session

KINDS = ("endpoint", "endpoint-config", "model")
_PAGE = 100


def tagged_resources(session: Session, wanted: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the tags of each endpoint, config and model with the ``wanted`` tags, by ARN.

    The answer lags behind SageMaker by minutes: it may lack a new resource and may show a deleted one.
    """
    asked = {
        "ResourceTypeFilters": [f"sagemaker:{kind}" for kind in KINDS],
        "TagFilters": [{"Key": key, "Values": [value]} for key, value in wanted.items()],
        "ResourcesPerPage": _PAGE,
    }
    with aws_errors("GetResources", session.local_url):
        client = session.client("resourcegroupstaggingapi")
        pages = client.get_paginator("get_resources").paginate(**asked)
        return {
            row["ResourceARN"]: {tag["Key"]: tag["Value"] for tag in row["Tags"]}
            for page in pages
            for row in page["ResourceTagMappingList"]
        }
