"""Mapping of botocore's errors to peagle-sm's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peagle_sm.core.errors import LOGIN_STEP, CredentialsError, NotFound, PeagleError, ServiceFault, SpecError

NO_ANSWER = "NoAnswer"
"""`ServiceFault.code` without a response: AWS may or may not have executed the call."""

_CREDENTIAL_CODES = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_DENIED_CODES = frozenset(
    {"AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation", "OptInRequired"}
)
_THROTTLE_CODES = frozenset(
    {
        "LimitExceededException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_SERVER_CODES = frozenset(
    {
        "InternalFailure",
        "InternalServerException",
        "InternalServerError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)
_ABSENT_CODES = frozenset(
    {"ResourceNotFound", "ResourceNotFoundException", "ObjectNotFoundException", "NoSuchEntity"}
)
# SageMaker and CloudFormation have no error code for a missing resource, only messages. The message must
# name the call's own resource: "Could not find model data at s3://..." is a wrong parameter.
_ABSENT_WORDS = (
    re.compile(r'could not find [a-z -]*(?:"(?!s3:)|arn:[\w-]+:sagemaker:)', re.IGNORECASE),
    re.compile(r'"?arn:[\w-]+:sagemaker:\S+ (?:does not exist|(?:was )?not found)', re.IGNORECASE),
    re.compile(r"(?:endpoint|inference component) \S+ of account \S+ not found", re.IGNORECASE),
    re.compile(r"\bstack(?: with id | for |[ :])\S+ does not exist", re.IGNORECASE),
    re.compile(r"resource \S+ does not exist for stack ", re.IGNORECASE),
    re.compile(r"requested resource not found", re.IGNORECASE),  # of a training job
)
# Of a role, a model or a config that was created a moment ago. A missing endpoint is another matter.
_INVISIBLE_WORDS = re.compile(
    r"could not find (?:endpoint[ -]config(?:uration)?|model) \"|could not assume role"
    r"|must allow aws eventbridge scheduler to assume the role",
    re.IGNORECASE,
)
_QUOTA_CODES = frozenset({"ResourceLimitExceeded", "ServiceQuotaExceededException"})
_TAKEN_CODES = frozenset({"ConflictException", "ResourceInUse", "ResourceInUseException"})


def api_name(operation: str) -> str:
    """Return AWS's name of a boto3 method: CreateEndpointConfig for create_endpoint_config."""
    words = operation.split("_")
    return "".join(word.upper() if word in ("ai", "aws") else word.capitalize() for word in words)


@contextmanager
def aws_errors(operation: str, local_url: str | None = None, profile: str | None = None) -> Iterator[None]:
    """Map botocore's errors inside the block; ``operation`` is AWS's call name.

    Raises:
        CredentialsError: missing, expired or refused credentials, a broken profile or setting, a missing
            permission.
        NotFound: the resource does not exist.
        ServiceFault: any other error answer, or no answer (code ``NoAnswer``).
        SpecError: botocore refuses the parameters before sending.
    """
    try:
        yield
    except PeagleError:
        raise
    except Exception as error:
        mapped = _mapped(error, operation, local_url, profile)
        if mapped is None:
            raise
        raise mapped from error


def _mapped(
    error: Exception, operation: str, local_url: str | None, profile: str | None
) -> PeagleError | None:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    from peagle_sm.aws.session.configuration import configuration_error

    broken = configuration_error(error, profile)
    if broken is not None:
        return broken
    if isinstance(error, ClientError):
        return from_client_error(error, operation)
    if isinstance(error, HTTPClientError | ConnectionError):  # refused, cut, timed out
        return _no_answer(error, operation, local_url)
    return _from_botocore(error, operation) if isinstance(error, BotoCoreError) else None


def from_client_error(error: Any, operation: str) -> PeagleError:
    """Map one botocore ClientError; ``operation`` is AWS's call name."""
    answer = error.response.get("Error", {})
    # The data plane throttles with `"message": null`.
    code, text = str(answer.get("Code") or ""), str(answer.get("Message") or "")
    meta = error.response.get("ResponseMetadata", {})
    details = {"operation": operation, "code": code, "http_status": meta.get("HTTPStatusCode")}
    message = f"{operation}: {text or code}"
    if code in _CREDENTIAL_CODES:
        return CredentialsError(message, next_step=LOGIN_STEP, details=details)
    if code in _DENIED_CODES:
        step = f"Ask for the permission named above ({operation}), or use another --profile."
        return CredentialsError(message, next_step=step, details=details)
    if code in _ABSENT_CODES or (code.startswith("Validation") and is_absent_message(text)):
        step = "Run `peagle-sm list` to see the existing endpoints, and check the region and account."
        return NotFound(message, next_step=step, details=details)
    return ServiceFault(
        message,
        operation=operation,
        code=code,
        request_id=str(meta.get("RequestId", "")),
        next_step=_step_for(code),
        details=details,
    )


def is_absent_message(message: str) -> bool:
    """Return whether a message means that the call's resource does not exist."""
    return any(words.search(message) for words in _ABSENT_WORDS)


def is_unsettled(error: BaseException) -> bool:
    """Return whether a call may have been executed, or may be retried later."""
    if not isinstance(error, ServiceFault):
        return False
    status = error.details.get("http_status")
    return (
        error.code == NO_ANSWER
        or error.code in _THROTTLE_CODES
        or error.code in _SERVER_CODES
        or (isinstance(status, int) and status >= 500)
    )


def is_refused_connection(error: BaseException) -> bool:
    """Return whether the connection was refused, so that nothing was sent."""
    return isinstance(error, ServiceFault) and bool(error.details.get("connection_refused"))


def is_taken(error: BaseException) -> bool:
    """Return whether a CreateX was refused because the name already exists."""
    if not isinstance(error, ServiceFault):
        return False
    lowered = error.message.lower()
    return "already exist" in lowered or "already existing" in lowered or error.code in _TAKEN_CODES


def is_not_visible_yet(error: BaseException) -> bool:
    """Return whether a CreateX may be refused only because what it names was just created."""
    return (
        isinstance(error, PeagleError)
        and str(error.details.get("code", "")).startswith("Validation")
        and _INVISIBLE_WORDS.search(error.message) is not None
    )


def is_refused_now(error: BaseException) -> bool:
    """Return whether a DeleteX was refused for now by the resource's status."""
    return isinstance(error, ServiceFault) and (
        error.code.startswith("Validation") or error.code in _TAKEN_CODES or is_unsettled(error)
    )


def _step_for(code: str) -> str:
    if code in _THROTTLE_CODES:
        return "AWS limits the rate of this call; wait a minute and run the command again."
    if code in _QUOTA_CODES:
        return "Raise the quota named above (Service Quotas console), or use another instance type."
    if code in _SERVER_CODES:
        return "AWS failed. Run the command again; it resumes from what already exists."
    if code.startswith("Validation"):
        return "Correct the parameter named above; `peagle-sm plan --dry-run` prints the exact requests."
    return "Run the command again; it resumes from what already exists."


def _no_answer(error: Exception, operation: str, local_url: str | None) -> ServiceFault:
    from botocore.exceptions import EndpointConnectionError, ProxyConnectionError, SSLError

    from peagle_sm.aws.session.configuration import without_passwords

    details: dict[str, Any] = {"operation": operation, "code": NO_ANSWER}
    if isinstance(error, EndpointConnectionError | ProxyConnectionError):
        details["connection_refused"] = True
    if local_url is not None:
        step = "Check it with `peagle-sm local status`, or start it with `peagle-sm local up`."
    elif isinstance(error, ProxyConnectionError):
        step = "Correct the proxy (HTTPS_PROXY, HTTP_PROXY), or name the host in NO_PROXY."
    elif isinstance(error, SSLError):
        step = "If a proxy signs with its own CA, name the CA's file in ca_bundle or AWS_CA_BUNDLE."
    else:
        step = "Check the network and the region; run the command again, it resumes from what already exists."
    return ServiceFault(
        f"{operation}: no answer: {without_passwords(str(error))}",
        operation=operation,
        code=NO_ANSWER,
        next_step=step,
        details=details,
    )


def _from_botocore(error: Exception, operation: str) -> PeagleError:
    from peagle_sm.aws.session.configuration import OF_PARAMETERS

    message = f"{operation}: {error}"
    if isinstance(error, OF_PARAMETERS):
        return SpecError(message, next_step="Correct the field named above.")
    return ServiceFault(
        message,
        operation=operation,
        code=NO_ANSWER,
        next_step="Run the command again; it resumes from what already exists.",
    )
