"""Bridges to the SageMaker Python SDK, which is optional.

Its objects are recognized by their attributes, so reading one imports nothing of the SDK; only returning one
does. These attributes are read: of v3's ``Session`` ``boto_session``; of its ``Endpoint`` ``endpoint_name``,
``_session`` and ``_region`` (its boto3 session and region, if given); of v2's ``Predictor``
``endpoint_name`` and ``sagemaker_session``. ``session.py`` reads the sessions. Source: packages
sagemaker-core 2.27.0 (``sagemaker`` 3.27.0), and ``sagemaker`` 2.257.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.words import install_command

EXTRA = install_command("sagemaker")
# The SDK reports each call of ModelBuilder to a bucket of AWS; for local calls this is turned off.
_NO_TELEMETRY = {
    "SchemaVersion": "1.0",
    "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
}


def endpoint_name_of(endpoint: Any) -> str:
    """Return the name of an SDK endpoint: v3's ``Endpoint`` or v2's ``Predictor``.

    Raises:
        SpecError: it is neither of these.
    """
    name = getattr(endpoint, "endpoint_name", None)
    if not isinstance(name, str):
        raise SpecError(
            f"endpoint: found {type(endpoint).__name__}; allowed: a name, or an Endpoint of the SageMaker "
            "Python SDK (sagemaker.core.resources.Endpoint, or v2's Predictor).",
            next_step="Give the endpoint's name.",
        )
    return name


def sdk_session(boto3_session: Any, *, telemetry: bool) -> Any:
    """Return an SDK Session that creates its clients with ``boto3_session``.

    Raises:
        NotFound: the SDK, version 3, is not installed.
    """
    helper = _sdk("sagemaker.core.helper.session_helper")
    config = {} if telemetry else {"sagemaker_config": _NO_TELEMETRY}
    return helper.Session(boto_session=boto3_session, **config)


def sdk_endpoint(boto3_session: Any, name: str, *, region: str, local_url: str | None) -> Any:
    """Return the SDK's ``sagemaker.core.resources.Endpoint`` for an endpoint.

    Raises:
        NotFound: the SDK, version 3, is not installed, or the endpoint does not exist.
    """
    resources = _sdk("sagemaker.core.resources")
    with aws_errors("DescribeEndpoint", local_url):
        return resources.Endpoint.get(endpoint_name=name, session=boto3_session, region=region)


def _sdk(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise NotFound(
            f"This needs the SageMaker Python SDK, version 3, which is not installed here ({error}).",
            next_step=EXTRA,
        ) from error
