"""Inference components: the models of an endpoint that hosts several, or that may scale to zero."""

from __future__ import annotations

from typing import Any

from peagle_sm.aws.control.sagemaker import PAGE
from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound


def component_names(session: Session, endpoint: str) -> tuple[str, ...]:
    """Return the names of an endpoint's inference components, sorted; empty when it has none.

    Raises:
        CredentialsError: sagemaker:ListInferenceComponents is not allowed.
        ServiceFault: AWS answers with a fault, or not at all.
    """
    with aws_errors("ListInferenceComponents", session.local_url):
        pages = session.client("sagemaker").get_paginator("list_inference_components")
        found = [
            row["InferenceComponentName"]
            for page in pages.paginate(EndpointNameEquals=endpoint, MaxResults=PAGE)
            for row in page["InferenceComponents"]
        ]
    return tuple(sorted(found))


def delete_component(session: Session, name: str) -> None:
    """Send DeleteInferenceComponent; it is gone a while later. Errors as above."""
    with aws_errors("DeleteInferenceComponent", session.local_url):
        session.client("sagemaker").delete_inference_component(InferenceComponentName=name)


def describe_component(session: Session, name: str) -> dict[str, Any] | None:
    """Return what DescribeInferenceComponent answers; None without such a component. Errors as above."""
    try:
        with aws_errors("DescribeInferenceComponent", session.local_url):
            found: dict[str, Any] = session.client("sagemaker").describe_inference_component(
                InferenceComponentName=name
            )
    except NotFound:
        return None
    return found
