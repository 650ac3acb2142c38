"""Errors of the user's AWS configuration: profiles, credentials, settings and variables.

botocore raises many of them as Python's own exceptions, such as a JSONDecodeError of `credential_process`.
The modules in the traceback show that it was reading credentials or a setting.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from types import FrameType

from botocore import exceptions as known

from peagle_sm.core.errors import CredentialsError

_KEYS_STEP = "Give --profile, set AWS_PROFILE, or run `aws configure`; without AWS, use --local."
_PROFILE_STEP = "List your profiles with `aws configure list-profiles`; give --profile."
_REGION_STEP = "Give --region, placement.region in the spec, or set AWS_REGION."
_PROXY = "the proxy (HTTPS_PROXY, HTTP_PROXY) or endpoint_url"
_CA_BUNDLE = "ca_bundle (AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE)"

_ROLE = "role_arn, source_profile or credential_source"
_TOKEN_FILE = "web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE)"
_SSO = "sso_session or sso_start_url"
# The setting behind a credential provider of botocore; its own messages often lack it.
_PROVIDERS = {
    "ProcessProvider": "credential_process",
    "AssumeRoleProvider": _ROLE,
    "AssumeRoleCredentialFetcher": _ROLE,
    "AssumeRoleWithWebIdentityProvider": _TOKEN_FILE,
    "AssumeRoleWithWebIdentityCredentialFetcher": _TOKEN_FILE,
    "ContainerProvider": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "SSOProvider": _SSO,
    "SSOCredentialFetcher": _SSO,
}
_CREDENTIAL_MODULES = ("botocore.credentials", "botocore.tokens")
_SETTING_MODULES = ("botocore.configprovider", "botocore.configloader", "botocore.args", "botocore.session")
# Where botocore parses an address, and its variable there.
_ADDRESS_CODE = {"EndpointCreator.create_endpoint": "endpoint_url", "_host_from_url": "url"}
_OF_REGION = (known.NoRegionError, known.InvalidRegionError, known.BaseEndpointResolverError)
OF_PARAMETERS = (
    known.InvalidDNSNameError,
    known.InvalidHostLabelError,
    known.MissingParametersError,
    known.ParamValidationError,
    known.UnsupportedOutpostResourceError,
    known.UnsupportedS3AccesspointConfigurationError,
    known.UnsupportedS3ArnError,
    known.UnsupportedS3ControlArnError,
    known.UnsupportedS3ControlConfigurationError,
    known.ValidationError,
)
"""botocore's errors about the parameters of a call, which it raises before sending."""
OF_CALLS = (
    *OF_PARAMETERS,
    known.AliasConflictParameterError,
    known.AwsChunkedWrapperError,
    known.CapacityNotAvailableError,
    known.ChecksumError,
    known.FlexibleChecksumError,
    known.IncompleteReadError,
    known.InvalidExpressionError,
    known.OperationNotPageableError,
    known.PaginationError,
    known.StubResponseError,
    known.UnknownClientMethodError,
    known.UnseekableStreamError,
    known.WaiterConfigError,
    known.WaiterError,
)
"""botocore's errors about a call or its answer. Its others are about a connection or the configuration."""


def configuration_error(error: Exception, profile: str | None) -> CredentialsError | None:
    """Return the error to show for a broken AWS configuration; None if ``error`` is about something else."""
    frames = list(_frames(error))
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    of_credentials = any(module in _CREDENTIAL_MODULES for module in modules)
    if isinstance(error, known.ProfileNotFound):
        return CredentialsError(f"{error}.", next_step=_PROFILE_STEP)
    if isinstance(error, known.ClientError):
        if not of_credentials or not _is_refusal(error):
            return None
    elif isinstance(error, known.HTTPClientError | known.ConnectionError):
        return _wrong_address(error, profile)
    elif isinstance(error, OF_CALLS):
        if not of_credentials:
            return None
    elif not isinstance(error, known.BotoCoreError):
        for frame in frames:
            if (variable := _ADDRESS_CODE.get(frame.f_code.co_qualname)) is not None:
                return _wrong_url(error, str(frame.f_locals.get(variable)), profile)
        if not of_credentials and not any(module in _SETTING_MODULES for module in modules[-2:]):
            return None
    settings = [str(name) for frame in frames if (name := frame.f_locals.get("logical_name"))]
    if of_credentials:
        owners = (frame.f_code.co_qualname.partition(".")[0] for frame in frames)
        settings += [_PROVIDERS[owner] for owner in owners if owner in _PROVIDERS]
    problem = f"{_text(error)} ({type(error).__name__})"
    if isinstance(error, known.NoCredentialsError):
        problem = "no AWS credentials were found"
    return _broken(profile, settings[-1] if settings else None, problem, _step_of(error, profile))


def _step_of(error: Exception, profile: str | None) -> str:
    flag = "" if profile in (None, "default") else f" --profile {profile}"
    if isinstance(error, known.NoCredentialsError):
        return _KEYS_STEP
    if isinstance(error, known.SSOError | known.TokenRetrievalError):
        return f"Run `aws sso login{flag}`."
    if isinstance(error, known.LoginError):
        return f"Run `aws login{flag}`."
    if isinstance(error, _OF_REGION):
        return _REGION_STEP
    if isinstance(error, known.MissingDependencyException):
        return "Install the package that is named above."
    return (
        f"Correct the profile or the variable, or give another --profile; check with "
        f"`aws sts get-caller-identity{flag}`."
    )


def _wrong_url(error: Exception, url: str, profile: str | None) -> CredentialsError:
    variables = {key: value for key, value in os.environ.items() if key.startswith("AWS_ENDPOINT_URL")}
    setting = next(
        (key for key, value in variables.items() if value and url.startswith(value)), "endpoint_url"
    )
    return _broken(
        profile,
        setting,
        f"found {url!r}; allowed: a URL that begins with http:// or https:// ({_text(error)})",
        f"Correct {setting}, with http:// or https:// before the host, or leave it out to call AWS.",
    )


def _wrong_address(error: Exception, profile: str | None) -> CredentialsError | None:
    """Map a connection error: a CA file that cannot be read, or an address that is not a URL."""
    address = str(getattr(error, "kwargs", {}).get("endpoint_url", "http://"))
    if isinstance(error, known.EndpointConnectionError) and not address.startswith(("http://", "https://")):
        return _wrong_url(error, address, profile)
    cause = getattr(error, "kwargs", {}).get("error")
    inner = cause.args[0] if isinstance(cause, Exception) and cause.args else None
    if isinstance(error, known.SSLError):
        unreadable = isinstance(inner, OSError) and not isinstance(inner, ssl.SSLError)
        if unreadable or "NO_CERTIFICATE" in str(inner):
            return _broken(profile, _CA_BUNDLE, _text(error), "Name a readable file with CA certificates.")
    elif isinstance(cause, ValueError):  # urllib3: LocationValueError
        return _broken(profile, _PROXY, _text(error), "Correct it: a URL such as http://host:port.")
    return None


def without_passwords(text: str) -> str:
    """Return a message without the user and the password of the addresses in it."""
    return re.sub(r"://[^\s/@]+@", "://***@", text)


def _broken(profile: str | None, setting: str | None, problem: str, step: str) -> CredentialsError:
    place = f"AWS profile {profile}" if profile else "AWS configuration"
    return CredentialsError(
        f"{place}: {f'{setting}: ' if setting else ''}{without_passwords(problem)}.",
        next_step=step,
        details={"profile": profile, "setting": setting},
    )


def _text(error: Exception) -> str:
    """Return the error's message; for a config file with the parser's line number."""
    detail = getattr(error, "kwargs", {}).get("error") or error.__context__
    words = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, EOFError):
        return "mfa_serial: no MFA code could be read, since stdin is closed"
    if isinstance(error, known.ConfigParseError) and detail is not None:
        words += f" ({' '.join(str(detail).split())})"
    return words


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _is_refusal(error: known.ClientError) -> bool:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return status < 500 and "Throttl" not in str(error.response.get("Error", {}).get("Code"))
