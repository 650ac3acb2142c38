"""Encrypted lines of recorded traffic, and the data keys of AWS KMS that encrypt them.

::

    {"schema":"peagle-sm/traffic/encrypted-1","time":…,"kms_key":"arn:…","data_key":"…","sealed":"…"}

``sealed`` is a nonce and the whole record, encrypted with AES-256-GCM, in base64. ``data_key`` is the data
key as KMS encrypted it. The fields in the clear are authenticated with the record. They have no content of
it; ``time`` is when the line was encrypted. Every line is complete by itself, as a plain one is.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from peagle_sm.core.errors import NotFound
from peagle_sm.core.words import install_command

# Importing it takes tens of milliseconds, and most recordings are not encrypted.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCRYPTED = "peagle-sm/traffic/encrypted-1"
#: Bound to each data key by KMS, and visible in CloudTrail; a key policy can require it.
ENCRYPTION_CONTEXT = {"peagle-sm": "traffic"}
_FIELDS = {"schema", "time", "kms_key", "data_key", "sealed"}
_NONCE_BYTES = 12  #: NIST SP 800-38D: at most 2^32 records for each data key with random nonces
_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):\d{12}:key/[\w-]{1,128}", re.ASCII)


def is_encrypted(line: Mapping[str, Any]) -> bool:
    """Return whether a JSON line is an encrypted record of this version."""
    return line.get("schema") == ENCRYPTED


def need_cryptography() -> None:
    """Check that the package that encrypts is installed, without importing it.

    Raises:
        NotFound: it is not.
    """
    if find_spec("cryptography") is None:
        raise NotFound(
            "Encrypted records need the package cryptography, which this Python does not have.",
            next_step=install_command("record"),
        )


@dataclass(frozen=True)
class DataKey:
    """A data key's name: the ARN of its KMS key, and the data key as KMS encrypted it."""

    kms_key: str
    encrypted: bytes


def region_of(kms_key: str) -> str | None:
    """Return the region in a key's ARN; None for an id or an alias."""
    parts = kms_key.split(":")
    return parts[3] if len(parts) > 5 and parts[2] == "kms" else None


def cipher_of(plain_key: bytes) -> AESGCM:
    """Return the cipher of a data key that KMS decrypted.

    Raises:
        ValueError: it does not have 256 bits.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(plain_key) != 32:
        raise ValueError(f"data key: found {8 * len(plain_key)} bits, expected 256")
    return AESGCM(plain_key)


def encrypted_line(line: bytes, key: DataKey, cipher: AESGCM, time: float) -> bytes:
    """Encrypt one line; the result has a line end."""
    header = _header(time, key)
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + cipher.encrypt(nonce, line.rstrip(b"\n"), header)
    return header[:-1] + b',"sealed":"' + base64.b64encode(sealed) + b'"}\n'


@dataclass(frozen=True)
class EncryptedLine:
    """An encrypted line that was read."""

    key: DataKey
    header: bytes
    sealed: bytes

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> EncryptedLine:
        """Take a JSON line apart.

        Raises:
            ValueError: a field is missing, unknown or damaged.
        """
        if line.keys() != _FIELDS or not isinstance(line["time"], float):
            raise ValueError("the fields of an encrypted record are not complete")
        kms_key = line["kms_key"]
        if not isinstance(kms_key, str) or not _KEY_ARN.fullmatch(kms_key):
            raise ValueError("kms_key is not the ARN of a KMS key")
        key = DataKey(kms_key, _decoded(line["data_key"]))
        sealed = _decoded(line["sealed"])
        if len(sealed) < _NONCE_BYTES:
            raise ValueError("the encrypted record is too short")
        return cls(key, _header(line["time"], key), sealed)

    def plain(self, cipher: AESGCM) -> bytes:
        """Decrypt the record.

        Raises:
            ValueError: the line was changed after it was written, or is damaged.
        """
        from cryptography.exceptions import InvalidTag

        nonce, content = self.sealed[:_NONCE_BYTES], self.sealed[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, content, self.header)
        except InvalidTag:
            raise ValueError("the encrypted record was changed after it was written, or is damaged") from None


def _header(time: float, key: DataKey) -> bytes:
    """Return the fields in the clear, as they are written; the record is bound to these bytes."""
    data_key = base64.b64encode(key.encrypted).decode()
    fields = {"schema": ENCRYPTED, "time": time, "kms_key": key.kms_key, "data_key": data_key}
    return json.dumps(fields, separators=(",", ":")).encode()


def _decoded(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("a field of the encrypted record is not text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("a field of the encrypted record is not base64") from None
