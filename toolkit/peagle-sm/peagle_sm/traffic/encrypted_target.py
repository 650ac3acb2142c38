"""A target whose lines are encrypted before another target writes them.

The data key comes from KMS. One is used for an hour at most: so long can the process go on after a permission
for the KMS key was taken away, and so much does a data key open that leaks. Each process has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.traffic.encrypted_lines import (
    ENCRYPTION_CONTEXT,
    DataKey,
    cipher_of,
    encrypted_line,
    region_of,
)
from peagle_sm.traffic.recorder import Lost, RecordTarget

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

RENEW_S = 3600.0
RENEW_RECORDS = 100_000  #: far below the 2^32 that AES-GCM allows for a key with random nonces
_AGAIN_S = 30.0  #: after KMS refused or did not answer
_WITHOUT_KEY = "or leave the key out: the file is then not encrypted"


class DataKeySource:
    """The data key in use; it is renewed by age and by number of records."""

    def __init__(
        self, session: Session, kms_key_id: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the KMS key's id, ARN or alias; `current` asks KMS for the first data key."""
        region = region_of(kms_key_id)
        self._session = session if region is None else session.in_region(region)
        self._kms_key_id = kms_key_id
        self._monotonic = monotonic
        self._current: tuple[DataKey, AESGCM] | None = None
        self._since = 0.0
        self._records = 0
        self._failed: tuple[PeagleError, float] | None = None

    def current(self) -> tuple[DataKey, AESGCM]:
        """Return the data key for one more record.

        Raises:
            PeagleError: a new one is due, and KMS refuses or does not answer; it is asked every 30 seconds.
        """
        now = self._monotonic()
        if self._current is None or now - self._since >= RENEW_S or self._records >= RENEW_RECORDS:
            self._current = None  # a key that is due is not used again, not even while KMS is away
            if self._failed is not None and now - self._failed[1] < _AGAIN_S:
                raise self._failed[0]
            try:
                self._current = self._new()
            except PeagleError as error:
                self._failed = (error, self._monotonic())
                raise
            self._since, self._records, self._failed = self._monotonic(), 0, None
        self._records += 1
        return self._current

    def _new(self) -> tuple[DataKey, AESGCM]:
        # One attempt: the recording's thread waits for it, and the end waits for the thread.
        answer = self._session.api("kms", once=True).generate_data_key(
            KeyId=self._kms_key_id, KeySpec="AES_256", EncryptionContext=ENCRYPTION_CONTEXT
        )
        key = DataKey(answer["KeyId"], answer["CiphertextBlob"])
        return key, cipher_of(answer["Plaintext"])

    def prepare(self) -> None:
        """Get the first data key.

        Raises:
            CredentialsError: no credentials, or kms:GenerateDataKey is missing.
            NotFound: the KMS key does not exist.
            SpecError: the KMS key is disabled, pending deletion, or of another kind.
            ServiceFault: KMS returns another error, or does not answer.
        """
        try:
            self.current()
        except PeagleError as error:
            raise self._refusal(error) from error
        self._records -= 1

    def _refusal(self, error: PeagleError) -> PeagleError:
        code, key = error.details.get("code"), self._kms_key_id
        message = f"the KMS key {key} does not encrypt records: {error.message}"
        region = self._session.region
        if isinstance(error, CredentialsError):
            if code is None or "AccessDenied" not in code:
                return CredentialsError(message, next_step=error.next_step, details=error.details)
            step = f"ask for kms:GenerateDataKey on the key, {_WITHOUT_KEY}"
            return CredentialsError(message, next_step=step, details=error.details)
        if code == "NotFoundException":
            step = f"list the keys with aws kms list-aliases --region {region}, {_WITHOUT_KEY}"
            return NotFound(message, next_step=step, details=error.details)
        if code == "DisabledException":
            step = f"run aws kms enable-key --region {region} --key-id {key}, {_WITHOUT_KEY}"
            return SpecError(message, next_step=step, details=error.details)
        if code in ("KMSInvalidStateException", "InvalidKeyUsageException"):
            step = f"give a symmetric encryption key that is enabled, {_WITHOUT_KEY}"
            return SpecError(message, next_step=step, details=error.details)
        return ServiceFault(
            message,
            operation="GenerateDataKey",
            code=code or "",
            next_step=f"check that KMS can be reached, and try again, {_WITHOUT_KEY}",
            details=error.details,
        )


class EncryptedTarget:
    """Another target's lines, each encrypted; a line that cannot be encrypted is not written."""

    def __init__(
        self, target: RecordTarget, keys: DataKeySource, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Take the target that writes, and the source of data keys."""
        self._target = target
        self._keys = keys
        self._clock = clock

    def write(self, lines: Sequence[bytes]) -> Lost | None:
        """Encrypt whole lines and write them.

        Raises:
            PeagleError: KMS gives no data key; nothing is written.
            OSError: the target does not accept them.
        """
        return self._target.write([self._encrypted(line) for line in lines])

    def tick(self) -> Lost | None:
        """Do what the target has to do by time."""
        return self._target.tick()

    def close(self) -> Lost | None:
        """Close the target."""
        return self._target.close()

    def describe(self) -> str:
        """Return where the lines are."""
        return self._target.describe()

    def _encrypted(self, line: bytes) -> bytes:
        key, cipher = self._keys.current()
        return encrypted_line(line, key, cipher, self._clock())
