"""Checks of a signature: present, well-formed, current, and for this region and service.

The signature itself is not verified, since any key is as good as another here. Codes and wordings are AWS's
own; docs/explanation/local.md names where each was seen. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_ALGORITHM = "AWS4-HMAC-SHA256"
_TERMINATOR = "aws4_request"
_STAMP = "%Y%m%dT%H%M%SZ"
_VALID = timedelta(minutes=5)
_PARAMETERS = ("Credential", "Signature", "SignedHeaders")

MISSING = "MissingAuthenticationTokenException"
INCOMPLETE = "IncompleteSignatureException"
INVALID = "InvalidSignatureException"


@dataclass(frozen=True)
class Unsigned:
    """Why a request is refused: AWS's code and text; the HTTP status is 403."""

    code: str
    message: str


@dataclass(frozen=True)
class Scope:
    """What a signature must be for."""

    region: str
    service: str


def refusal(headers: Mapping[str, str], scope: Scope, now: datetime) -> Unsigned | None:
    """Return what is wrong with the signature in a request's headers (names in any case), or None."""
    authorization = headers.get("Authorization", "").strip()
    if not authorization.startswith("AWS4-"):
        return Unsigned(MISSING, "Missing Authentication Token")
    algorithm, _, rest = authorization.partition(" ")
    given = dict(_parameters(rest))
    stamp = headers.get("X-Amz-Date") or headers.get("Date")
    lacking = [
        f"Authorization header requires '{name}' parameter." for name in _PARAMETERS if not given.get(name)
    ]
    if stamp is None:
        lacking.append("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    if lacking or stamp is None:
        return Unsigned(INCOMPLETE, " ".join([*lacking, f"Authorization={authorization}"]))
    if algorithm != _ALGORITHM:
        return Unsigned(
            INCOMPLETE, f"Unsupported AWS 'algorithm': '{algorithm}' (only {_ALGORITHM} for now). "
        )
    return _stale(stamp, now) or _unscoped(given, stamp, scope)


def _parameters(rest: str) -> Iterator[tuple[str, str]]:
    for pair in re.split(r"[,\s]+", rest.strip()):  # AWS takes commas and blanks alike
        name, _, value = pair.partition("=")
        yield name, value


def _stale(stamp: str, now: datetime) -> Unsigned | None:
    """Refuse what was not signed within five minutes; a ``Date`` header is another form, and is let pass."""
    if not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
        return None if "," in stamp else Unsigned(INCOMPLETE, _not_a_date(stamp))
    try:
        signed = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return Unsigned(INCOMPLETE, _not_a_date(stamp))
    if signed < now - _VALID:
        limits = f"{now - _VALID:{_STAMP}} ({now:{_STAMP}} - 5 min.)"
        return Unsigned(INVALID, f"Signature expired: {stamp} is now earlier than {limits}")
    if signed > now + _VALID:
        limits = f"{now + _VALID:{_STAMP}} ({now:{_STAMP}} + 5 min.)"
        return Unsigned(INVALID, f"Signature not yet current: {stamp} is still later than {limits}")
    return None


def _not_a_date(stamp: str) -> str:
    return (
        f"Date must be in ISO-8601 'basic format'. Got '{stamp}'. See http://en.wikipedia.org/wiki/ISO_8601"
    )


def _unscoped(given: Mapping[str, str], stamp: str, scope: Scope) -> Unsigned | None:
    if "host" not in given["SignedHeaders"].lower().split(";"):
        return Unsigned(INVALID, "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    parts = given["Credential"].rstrip("/").split("/")
    if len(parts) != 5:
        return Unsigned(
            INCOMPLETE,
            "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, "
            f"got '{given['Credential']}'",
        )
    _, date, region, service, terminator = parts
    wrong = []
    if region != scope.region:
        wrong.append("Credential should be scoped to a valid region. ")
    if service != scope.service:
        wrong.append(f"Credential should be scoped to correct service: '{scope.service}'. ")
    if terminator != _TERMINATOR:
        wrong.append(
            f"Credential should be scoped with a valid terminator: '{_TERMINATOR}', not '{terminator}'. "
        )
    if re.fullmatch(r"\d{8}T\d{6}Z", stamp) and date != stamp[:8]:
        wrong.append(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            f"'{date}' != '{stamp[:8]}', from '{stamp}'."
        )
    return Unsigned(INVALID, "".join(wrong)) if wrong else None
