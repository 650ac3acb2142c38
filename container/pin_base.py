#!/usr/bin/env python3
"""Find the digest of an image's tag: ``pin_base.py REPOSITORY:TAG`` prints REPOSITORY@sha256:DIGEST.

It asks the registry itself (OCI distribution API) and hashes the manifest that it gets, so what it prints is
what was read, not what a header said. A reference that has a digest already is looked up too. Anonymous, for
public images; standard library only.
"""

import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

DOCKER_HUB = "registry-1.docker.io"
#: One image for several machines, or one manifest: both can be pinned.
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_NAME = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TIMEOUT_S = 30
_MOST_BYTES = 4 * 2**20


class PinError(Exception):
    """Error: the image cannot be pinned; the text gives the reason and the next step."""


@dataclass(frozen=True)
class Reference:
    """Reference of an image: registry, repository, and tag or digest."""

    registry: str
    repository: str
    wanted: str

    @property
    def name(self) -> str:
        """Image without tag or digest, as Docker accepts it."""
        return self.repository if self.registry == DOCKER_HUB else f"{self.registry}/{self.repository}"


def parse(text: str) -> Reference:
    """Read ``[REGISTRY/]REPOSITORY:TAG`` or ``…@sha256:DIGEST``.

    Raises:
        PinError: the reference is invalid.
    """
    head, at, digest = text.partition("@")
    first, slash, rest = head.partition("/")
    registry, path = (first, rest) if slash and re.search(r"[.:]", first) else (DOCKER_HUB, head)
    repository, _, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    wanted = digest if at else tag
    if not _NAME.fullmatch(repository) or not re.fullmatch(r"sha256:[0-9a-f]{64}|[\w][\w.-]{0,127}", wanted):
        raise PinError(f"{text!r} names no image; allowed: REPOSITORY:TAG or REPOSITORY@sha256:DIGEST")
    if wanted == "latest":
        raise PinError(f"{text!r}: latest says nothing of the version; name a version's tag")
    return Reference(registry, repository, wanted)


def pin(reference: Reference) -> str:
    """Return ``REPOSITORY@sha256:DIGEST``.

    Raises:
        PinError: the registry does not have the image, or does not answer.
    """
    # A registry on this machine is one for tests, without TLS.
    scheme = "http" if reference.registry.startswith(("127.0.0.1:", "localhost:")) else "https"
    url = f"{scheme}://{reference.registry}/v2/{reference.repository}/manifests/{reference.wanted}"
    try:
        manifest = _get(url, None)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise _refused(reference, error) from error
        token = _token(error.headers.get("WWW-Authenticate", ""), reference)
        try:
            manifest = _get(url, token)
        except urllib.error.HTTPError as again:
            raise _refused(reference, again) from again
    except OSError as error:
        raise PinError(f"{reference.registry} does not answer: {error}") from error
    found = "sha256:" + hashlib.sha256(manifest).hexdigest()
    if reference.wanted.startswith("sha256:") and found != reference.wanted:
        raise PinError(f"{reference.registry} sent {found} for {reference.wanted}: not the image asked for")
    return f"{reference.name}@{found}"


def _refused(reference: Reference, error: urllib.error.HTTPError) -> PinError:
    if error.code == 404:
        return PinError(f"{reference.registry} has no {reference.repository}:{reference.wanted}")
    return PinError(
        f"{reference.registry} answered {error.code}: try again later, or log in and use its digest"
    )


def _token(challenge: str, reference: Reference) -> str:
    """Get the anonymous token that the registry requires."""
    given = dict(_CHALLENGE.findall(challenge))
    realm = given.get("realm", "")
    if not realm.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise PinError(f"{reference.registry} asks for a login that this cannot make: {challenge!r}")
    scope = given.get("scope") or f"repository:{reference.repository}:pull"
    query = urllib.parse.urlencode({"service": given.get("service", ""), "scope": scope})
    try:
        answer = json.loads(_get(f"{realm}?{query}", None))
    except (OSError, ValueError) as error:
        raise PinError(f"{realm} gave no token: {error}") from error
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str):
        raise PinError(f"{realm} gave no token")
    return token


def _get(url: str, token: str | None) -> bytes:
    headers = {"Accept": _ACCEPT if "/manifests/" in url else "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_MOST_BYTES)
        return content


def main(arguments: list[str]) -> int:
    """Run the command."""
    if len(arguments) != 1:
        print("usage: pin_base.py REPOSITORY:TAG", file=sys.stderr)
        return 2
    try:
        print(pin(parse(arguments[0])))
    except PinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
