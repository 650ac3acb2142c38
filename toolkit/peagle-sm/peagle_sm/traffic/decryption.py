"""Encrypted lines, read back: KMS decrypts each data key once, with the reader's own permissions.

A line of a KMS key that refuses is left out, counted and named; the other lines are read. A session that
does not work at all, or a KMS that does not answer, raises: the next try reads more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.traffic.encrypted_lines import (
    ENCRYPTION_CONTEXT,
    DataKey,
    EncryptedLine,
    cipher_of,
    need_cryptography,
    region_of,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_DAMAGED = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_ABOUT_THE_KEY = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "DisabledException",
        "InvalidArnException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
    }
)


class KmsKeyRefused(PeagleError):
    """A KMS key does not decrypt; its lines stay closed."""


class Decryption:
    """Decrypts lines; counts those of KMS keys that refuse."""

    def __init__(self, session: Callable[[], Session] | None) -> None:
        """Take what opens the session; it is called for the first encrypted line."""
        self._open_session = session
        self._session: Session | None = None
        self._ciphers: dict[DataKey, AESGCM | ValueError] = {}
        self._refusals: dict[str, PeagleError] = {}
        self._refused: Counter[str] = Counter()

    def plain(self, line: EncryptedLine, origin: str) -> bytes:
        """Return the record of a line; ``origin`` is the file, for messages.

        Raises:
            KmsKeyRefused: its KMS key refuses; the line is counted.
            ValueError: the line or its data key is damaged.
            SpecError, CredentialsError, NotFound, ServiceFault: there is no session, credentials or package,
                or KMS does not answer.
        """
        kms_key = line.key.kms_key
        if kms_key not in self._refusals and line.key not in self._ciphers:
            self._ask(line.key, origin)
        if kms_key in self._refusals:
            self._refused[kms_key] += 1
            raise KmsKeyRefused(self._refusals[kms_key].message)
        cipher = self._ciphers[line.key]
        if isinstance(cipher, ValueError):
            raise cipher
        return line.plain(cipher)

    def notes(self) -> tuple[str, ...]:
        """Return a note for each KMS key that refused: how many lines, why, and what to do."""
        return tuple(
            f"{count:,} encrypted records were left out: {self._refusals[key].message}."
            f" {self._refusals[key].next_step}"
            for key, count in self._refused.items()
        )

    def refusal(self) -> PeagleError | None:
        """Return the first KMS key's refusal; None if none refused."""
        return next(iter(self._refusals.values()), None)

    def _ask(self, key: DataKey, origin: str) -> None:
        need_cryptography()
        session = self._opened(key, origin)
        region = region_of(key.kms_key)
        assert region is not None, "checked when the line was taken apart"
        try:
            answer: dict[str, Any] = (
                session.in_region(region)
                .api("kms")
                .decrypt(
                    CiphertextBlob=key.encrypted, KeyId=key.kms_key, EncryptionContext=ENCRYPTION_CONTEXT
                )
            )
            self._ciphers[key] = cipher_of(answer["Plaintext"])
        except PeagleError as error:
            code = error.details.get("code")
            if code in _DAMAGED:
                self._ciphers[key] = ValueError("KMS does not recognise the data key; the line is damaged")
            elif code in _ABOUT_THE_KEY:
                self._refusals[key.kms_key] = _refusal(error, key.kms_key, region)
            else:
                raise _unsettled(error, key, origin) from error
        except ValueError as error:
            self._ciphers[key] = error

    def _opened(self, key: DataKey, origin: str) -> Session:
        if self._session is None:
            if self._open_session is None:
                raise SpecError(
                    f"{origin} has records that are encrypted with the KMS key {key.kms_key}, and no AWS"
                    " session was given",
                    next_step="give session=… to the call; it needs kms:Decrypt on the key",
                )
            try:
                self._session = self._open_session()
            except CredentialsError as error:
                raise _unsettled(error, key, origin) from error
        return self._session


def _refusal(error: PeagleError, key: str, region: str) -> PeagleError:
    """Say what is wrong with a KMS key, and what to do."""
    code = error.details["code"]
    message = f"the KMS key {key} does not decrypt them: {error.message.rstrip('.')}"
    if isinstance(error, CredentialsError):
        step = "Ask for kms:Decrypt on the key, or use another --profile"
        return CredentialsError(message, next_step=step, details=error.details)
    if code in ("NotFoundException", "InvalidArnException"):
        step = "Check the account and --profile. Nobody can read the records of a key that was deleted"
        return NotFound(message, next_step=step, details=error.details)
    enable = f"aws kms enable-key --region {region} --key-id {key}"
    step = (
        f"Ask the key's administrator to run {enable}"
        if code == "DisabledException"
        else "If its deletion is pending, ask the key's administrator to run aws kms cancel-key-deletion"
        f" --region {region} --key-id {key}, then {enable}"
    )
    return ServiceFault(message, operation="Decrypt", code=code, next_step=step, details=error.details)


def _unsettled(error: PeagleError, key: DataKey, origin: str) -> PeagleError:
    """Say for which file AWS was needed; the class, and so the exit code, stays."""
    message = f"{origin} is encrypted with the KMS key {key.kms_key}: {error.message}"
    if isinstance(error, CredentialsError):
        return CredentialsError(message, next_step=error.next_step, details=error.details)
    code = str(error.details.get("code") or "")
    return ServiceFault(
        message, operation="Decrypt", code=code, next_step=error.next_step, details=error.details
    )
