"""Errors of the user's AWS configuration: profiles, credentials, settings and variables.

botocore raises many of them as Python's own exceptions, such as a JSONDecodeError of `credential_process`.
The frames of the traceback name the credential provider or the setting.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from botocore import exceptions as known

from peagle_sm.core.errors import LOGIN_STEP, CredentialsError

_KEYS_STEP = "Give --profile, set AWS_PROFILE, or run `aws configure`; without AWS, use --local."
_FILE_STEP = "Correct the file that is named above; AWS_CONFIG_FILE names another one."
_SETTING_STEP = "Correct the value in the profile, or in the environment variable."
_REGION_STEP = "Give --region, placement.region in the spec, or set AWS_REGION."
_ROLE = "role_arn, source_profile or credential_source"
_TOKEN_FILE = "web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE)"
_CONTAINER = "AWS_CONTAINER_CREDENTIALS_FULL_URI and AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
_METADATA = "the EC2 metadata service (AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_METADATA_SERVICE_…)"
_PROXY = "the proxy (HTTPS_PROXY, HTTP_PROXY) or endpoint_url"
_CA_BUNDLE = "ca_bundle (AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE)"

# Credential provider or fetcher of botocore: its setting, and the values that the setting may have.
_PROVIDERS: dict[str, tuple[str, str]] = {
    "ProcessProvider": (
        "credential_process",
        "a command that prints one JSON object with Version 1, AccessKeyId and SecretAccessKey",
    ),
    "AssumeRoleProvider": (_ROLE, "a role that those credentials may assume"),
    "AssumeRoleCredentialFetcher": (_ROLE, "a role that those credentials may assume"),
    "AssumeRoleWithWebIdentityProvider": (_TOKEN_FILE, "a file with a token, and role_arn (AWS_ROLE_ARN)"),
    "AssumeRoleWithWebIdentityCredentialFetcher": (
        _TOKEN_FILE,
        "a file with a token, and role_arn (AWS_ROLE_ARN)",
    ),
    "ContainerProvider": (_CONTAINER, "the address and the token file of a credential server"),
    "InstanceMetadataProvider": (_METADATA, "numbers, and an http:// address"),
    "SSOProvider": ("sso_session or sso_start_url", "a session with a token of `aws sso login`"),
    "SSOCredentialFetcher": ("sso_session or sso_start_url", "a session with a token of `aws sso login`"),
    "LoginProvider": ("login_session", "a session with a token of `aws login`"),
    "LoginCredentialFetcher": ("login_session", "a session with a token of `aws login`"),
    "EnvProvider": ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "both keys"),
    "SharedCredentialProvider": ("aws_access_key_id and aws_secret_access_key", "both keys"),
    "ConfigProvider": ("aws_access_key_id and aws_secret_access_key", "both keys"),
    "OriginalEC2Provider": ("AWS_CREDENTIAL_FILE", "a file with both keys"),
    "BotoProvider": ("BOTO_CONFIG", "a file with both keys"),
}
# Where botocore reads settings. Other modules carry out calls, and their errors are not about settings.
_CREDENTIAL_MODULES = ("botocore.credentials", "botocore.tokens")
_SETTING_MODULES = ("botocore.configprovider", "botocore.configloader", "botocore.args", "botocore.session")
# Where botocore parses an address, and its variable there.
_ADDRESS_CODE = {"EndpointCreator.create_endpoint": "endpoint_url", "_host_from_url": "url"}

Classes = tuple[type[Exception], ...]
CREDENTIALS: Classes = (
    known.CredentialRetrievalError,
    known.LoginError,
    known.MetadataRetrievalError,
    known.NoAuthTokenError,
    known.NoCredentialsError,
    known.PartialCredentialsError,
    known.RefreshWithMFAUnsupportedError,
    known.SSOError,
    known.TokenRetrievalError,
    known.UnknownCredentialError,
    known.UnknownTokenProviderError,
)
"""botocore's errors about who the caller is."""
SETTINGS: dict[type[Exception], tuple[str, str]] = {
    known.ApiVersionNotFoundError: ("api_versions", "Leave api_versions out of the profile."),
    known.BaseEndpointResolverError: ("region", _REGION_STEP),
    known.ConfigNotFound: ("config file", _FILE_STEP),
    known.ConfigParseError: ("config file", _FILE_STEP),
    known.DataNotFoundError: ("api_versions or AWS_DATA_PATH", "Leave them out, or upgrade boto3."),
    known.EndpointProviderError: ("region, use_fips_endpoint or use_dualstack_endpoint", _REGION_STEP),
    known.InvalidChecksumConfigError: ("checksum settings", _SETTING_STEP),
    known.InvalidConfigError: ("config file", _SETTING_STEP),
    known.InvalidDefaultsMode: ("defaults_mode (AWS_DEFAULTS_MODE)", _SETTING_STEP),
    known.InvalidEndpointConfigurationError: ("endpoint_url (AWS_ENDPOINT_URL)", _SETTING_STEP),
    known.InvalidEndpointDiscoveryConfigurationError: ("endpoint_discovery_enabled", _SETTING_STEP),
    known.InvalidIMDSEndpointError: (_METADATA, "Correct AWS_EC2_METADATA_SERVICE_ENDPOINT."),
    known.InvalidIMDSEndpointModeError: (_METADATA, "Correct AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE."),
    known.InvalidProxiesConfigError: (_PROXY, "Correct the proxy's settings."),
    known.InvalidRegionError: ("region", _REGION_STEP),
    known.InvalidRetryConfigurationError: ("max_attempts or retry_mode (AWS_MAX_ATTEMPTS)", _SETTING_STEP),
    known.InvalidS3AddressingStyleError: ("s3.addressing_style", _SETTING_STEP),
    known.InvalidS3UsEast1RegionalEndpointConfigError: ("s3.us_east_1_regional_endpoint", _SETTING_STEP),
    known.InvalidSTSRegionalEndpointsConfigError: (
        "sts_regional_endpoints (AWS_STS_REGIONAL_ENDPOINTS)",
        _SETTING_STEP,
    ),
    known.MD5UnavailableError: ("this Python", "Use a Python that has MD5, which a FIPS build may lack."),
    known.MissingDependencyException: ("the credentials", "Install the package that is named above."),
    known.NoRegionError: ("region", _REGION_STEP),
    known.ProfileNotFound: (
        "profile",
        "List your profiles with `aws configure list-profiles`; give --profile.",
    ),
    known.ServiceNotInRegionError: ("region", _REGION_STEP),
    known.UnknownRegionError: ("region", _REGION_STEP),
    known.UnknownSignatureVersionError: ("signature_version", _SETTING_STEP),
    known.UnsupportedS3ConfigurationError: ("s3 settings", _SETTING_STEP),
    known.UnsupportedServiceProtocolsError: ("this boto3", "Upgrade boto3."),
    known.UnsupportedSignatureVersionError: ("signature_version", _SETTING_STEP),
}
"""botocore's errors about a setting: the setting, and the next step."""


def configuration_error(error: Exception, profile: str | None) -> CredentialsError | None:
    """Return the error to show for a broken AWS configuration; None if ``error`` is about something else.

    ``profile`` is used where the traceback does not name a profile.
    """
    frames = list(_frames(error))
    profile = next((name for frame in reversed(frames) if (name := _profile_of(frame))), profile)
    if isinstance(error, known.ProfileNotFound):
        return CredentialsError(f"{error}.", next_step=SETTINGS[known.ProfileNotFound][1])
    if isinstance(error, known.ClientError):
        if not _refuses_role(error, frames):
            return None
    elif isinstance(error, known.HTTPClientError | known.ConnectionError):
        return _wrong_address(error, profile)
    setting = next((str(name) for frame in reversed(frames) if (name := _setting_of(frame))), None)
    if setting is not None and not isinstance(error, known.BotoCoreError):
        return _broken(profile, setting, _text(error), _SETTING_STEP)
    provider = next(
        (_PROVIDERS[name] for frame in reversed(frames) if (name := _owner(frame)) in _PROVIDERS), None
    )
    if isinstance(error, known.MissingDependencyException):
        provider = None
    if provider is not None and any(_module(frame) in _CREDENTIAL_MODULES for frame in frames):
        setting, allowed = provider
        step = f"Correct {setting} and check with `aws sts get-caller-identity{_flag(profile)}`."
        if isinstance(error, known.InvalidConfigError) and "sso" in setting:
            step = f"Correct the sso-session of the profile; then run `aws sso login{_flag(profile)}`."
        elif "sso" in setting or "login" in setting:
            step = f"Run `aws {'sso ' if 'sso' in setting else ''}login{_flag(profile)}`."
        return _broken(profile, setting, f"{_text(error)}; allowed: {allowed}", step)
    if isinstance(error, known.NoCredentialsError):
        return CredentialsError(f"{_place(profile)}: no AWS credentials were found.", next_step=_KEYS_STEP)
    if isinstance(error, CREDENTIALS):
        return _broken(profile, "credentials", _text(error), _step_of(error, profile))
    for kind in type(error).__mro__:
        if kind in SETTINGS:
            return _broken(profile, SETTINGS[kind][0], _text(error), SETTINGS[kind][1])
    return None if isinstance(error, known.BotoCoreError) else _of_setting(error, frames, profile)


def _of_setting(error: Exception, frames: list[FrameType], profile: str | None) -> CredentialsError | None:
    """Map an exception of Python's own that botocore raised while it read a setting."""
    for frame in frames:
        if frame.f_code.co_qualname in _ADDRESS_CODE:
            url = str(frame.f_locals.get(_ADDRESS_CODE[frame.f_code.co_qualname]))
            return _wrong_url(error, url, profile)
    modules = [_module(frame) for frame in frames]
    if any(name in _CREDENTIAL_MODULES for name in modules):
        return _broken(profile, "credentials", _text(error), LOGIN_STEP)
    if modules and any(name in _SETTING_MODULES for name in modules[-2:]):
        names = [str(name) for frame in frames if (name := frame.f_locals.get("logical_name"))]
        setting = names[-1] if names else "a setting"
        return _broken(
            profile, setting, _text(error), f"Correct {setting} in the profile or the environment."
        )
    return None


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


def _broken(profile: str | None, setting: str, problem: str, step: str) -> CredentialsError:
    return CredentialsError(
        f"{_place(profile)}: {setting}: {without_passwords(problem)}.",
        next_step=step,
        details={"profile": profile, "setting": setting},
    )


def _place(profile: str | None) -> str:
    return f"AWS profile {profile}" if profile else "AWS configuration"


def _flag(profile: str | None) -> str:
    return "" if profile in (None, "default") else f" --profile {profile}"


def _step_of(error: Exception, profile: str | None) -> str:
    if isinstance(error, known.PartialCredentialsError):
        return "Add the missing value that is named above, or use another --profile."
    if isinstance(error, known.SSOError):
        return f"Run `aws sso login{_flag(profile)}`."
    if isinstance(error, known.LoginError):
        return f"Run `aws login{_flag(profile)}`."
    return LOGIN_STEP


def _text(error: Exception) -> str:
    """Return the error's message; for a config file with the parser's line number."""
    detail = getattr(error, "kwargs", {}).get("error") or error.__context__
    words = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, EOFError):
        return "mfa_serial: no MFA code could be read, since stdin is closed"
    if isinstance(error, json.JSONDecodeError | AttributeError | TypeError | KeyError):
        return f"its output is not the JSON object that botocore expects ({words})"
    if isinstance(error, known.ConfigParseError) and detail is not None:
        words += f" ({' '.join(str(detail).split())})"
    return words


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _setting_of(frame: FrameType) -> str | None:
    """Return the setting that a frame of botocore's readers of settings reads."""
    name = frame.f_locals.get("logical_name") if _module(frame) in _SETTING_MODULES else None
    return name if isinstance(name, str) else None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _owner(frame: FrameType) -> str:
    """Return the class of the method that a frame of botocore's credential modules runs."""
    code: CodeType = frame.f_code
    return code.co_qualname.partition(".")[0] if _module(frame) in _CREDENTIAL_MODULES else ""


def _profile_of(frame: FrameType) -> str | None:
    owner: Any = frame.f_locals.get("self")
    name = getattr(owner, "_profile_name", None) if _owner(frame) in _PROVIDERS else None
    return name if isinstance(name, str) else None


def _refuses_role(error: known.ClientError, frames: list[FrameType]) -> bool:
    """Return whether AWS refused a call of botocore's own, such as AssumeRole, for the credentials."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    code = str(error.response.get("Error", {}).get("Code"))
    return status < 500 and "Throttl" not in code and any(_owner(frame) in _PROVIDERS for frame in frames)
