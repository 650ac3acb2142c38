"""Bridges to the SageMaker Python SDK, an optional guest.

Its objects are known by what they have, so reading one imports nothing of the SDK; only giving one back
does. What is read here: v3's ``Session`` (``boto_session``), ``Endpoint`` (``endpoint_name``, ``_session``
and ``_region``, its boto3 session and region where it was given some) and ``ModelBuilder``
(``sagemaker_session``), and v2's ``Predictor`` (``endpoint_name``, ``sagemaker_session``). Source: packages
sagemaker-core 2.27.0 and sagemaker-serve 1.27.0 (``sagemaker`` 3.27.0), and ``sagemaker`` 2.257.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session, make_session
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.extras import install_command

EXTRA = install_command("sagemaker")
# The SDK reports each call of ModelBuilder to a bucket of AWS; what runs on this machine stays on it.
_NO_TELEMETRY = {
    "SchemaVersion": "1.0",
    "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
}


def session_from_sagemaker(sagemaker_session: Any, region: str | None = None) -> Session:
    """Return our session for the SDK's: the same credentials, region and local server.

    ``sagemaker_session`` is an SDK Session, or a boto3 session, which the SDK's resources take.

    Raises:
        SpecError: it is neither.
        CredentialsError: it has no region.
    """
    from peagle_sm.aws.session.local_boto3 import (
        LocalBoto3,  # it loads boto3, and `Endpoint` loads this module
    )

    boto3_session = getattr(sagemaker_session, "boto_session", None) or sagemaker_session
    if not hasattr(boto3_session, "client") or not hasattr(boto3_session, "region_name"):
        raise SpecError(
            f"sagemaker_session: found {type(sagemaker_session).__name__}; allowed: a Session of the "
            "SageMaker Python SDK, or a boto3.Session.",
            next_step="Give sagemaker.core.helper.session_helper.Session(), or leave it out.",
        )
    if isinstance(boto3_session, LocalBoto3):
        return make_session(local=boto3_session.target)
    region = region or getattr(sagemaker_session, "boto_region_name", None)
    return Session(boto3_session, region) if region else Session.from_boto3(boto3_session)


def endpoint_name_of(endpoint: Any) -> str:
    """Return the name of an SDK's endpoint: v3's ``Endpoint`` or v2's ``Predictor``.

    Raises:
        SpecError: it is none of these.
    """
    name = getattr(endpoint, "endpoint_name", None)
    if not isinstance(name, str):
        raise SpecError(
            f"endpoint: found {type(endpoint).__name__}; allowed: a name, or an Endpoint of the SageMaker "
            "Python SDK (sagemaker.core.resources.Endpoint, or v2's Predictor).",
            next_step="Give the endpoint's name.",
        )
    return name


def session_of(thing: Any) -> Session | None:
    """Return our session for the one that an SDK's endpoint or builder holds; None where it holds none."""
    # The resource classes take a boto3 session and keep it private; everything else holds an SDK Session.
    held = getattr(thing, "sagemaker_session", None) or getattr(thing, "_session", None)
    region = getattr(thing, "_region", None)
    if held is not None:
        return session_from_sagemaker(held, region)
    return make_session(region=region) if region else None


def sdk_session(session: Session) -> Any:
    """Return an SDK Session that reaches the same place.

    Raises:
        NotFound: the SDK, version 3, is not installed.
    """
    helper = _sdk("sagemaker.core.helper.session_helper")
    config = {"sagemaker_config": _NO_TELEMETRY} if session.is_local else {}
    return helper.Session(boto_session=session.to_boto3(), **config)


def sdk_endpoint(session: Session, name: str) -> Any:
    """Return the SDK's ``sagemaker.core.resources.Endpoint`` of an endpoint that exists.

    Raises:
        NotFound: the SDK, version 3, is not installed, or the endpoint does not exist.
    """
    resources = _sdk("sagemaker.core.resources")
    with aws_errors("DescribeEndpoint", session.local_url):
        return resources.Endpoint.get(endpoint_name=name, session=session.to_boto3(), region=session.region)


def _sdk(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise NotFound(
            f"This needs the SageMaker Python SDK, version 3, which this Python does not have ({error}).",
            next_step=EXTRA,
        ) from error
