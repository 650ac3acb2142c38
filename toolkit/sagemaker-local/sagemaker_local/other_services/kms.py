"""KMS keys that moto lets pass and AWS refuses: disabled, to be deleted, denied, of another kind."""

from __future__ import annotations

import json
from typing import Any

from sagemaker_local.other_services.policies import EXPLICIT, decide

_MARK = "peagle_rules"


def lay_kms_rules() -> None:
    """Have GenerateDataKey and Decrypt refuse as AWS does, once in a process."""
    from moto.kms.models import KmsBackend

    if getattr(KmsBackend, _MARK, False):
        return
    generate, decrypt = KmsBackend.generate_data_key, KmsBackend.decrypt

    def generate_data_key(self: Any, key_id: str, *more: Any, **others: Any) -> Any:
        _refuse_unusable(self, key_id, "kms:GenerateDataKey")
        return generate(self, key_id, *more, **others)

    def checked_decrypt(
        self: Any, ciphertext_blob: bytes, encryption_context: dict[str, str], key_id: str | None = None
    ) -> Any:
        if key_id is not None:
            _refuse_unusable(self, key_id, "kms:Decrypt")
        plaintext, arn = decrypt(self, ciphertext_blob, encryption_context)
        if key_id is None:
            _refuse_unusable(self, arn, "kms:Decrypt")
        elif self.keys[self.any_id_to_key_id(key_id)].arn != arn:
            raise _error(
                "IncorrectKeyException",
                "The key ID in the request does not identify a CMK that can perform this operation.",
            )
        return plaintext, arn

    KmsBackend.generate_data_key = generate_data_key
    KmsBackend.decrypt = checked_decrypt
    setattr(KmsBackend, _MARK, True)


def _refuse_unusable(backend: Any, key_id: str, action: str) -> None:
    key = backend.keys[backend.any_id_to_key_id(key_id)]
    try:
        policy = json.loads(key.policy)
    except (TypeError, ValueError):
        policy = {}
    # Of a key's policy only a Deny counts here: the local server does not know who calls.
    if decide([policy], action, key.arn, {}).decision == EXPLICIT:
        raise _error(
            "AccessDeniedException",
            f"User: arn:aws:iam::{backend.account_id}:user/local is not authorized to perform: {action} on"
            f" resource: {key.arn} with an explicit deny in a resource-based policy",
        )
    if key.key_state == "Disabled":
        raise _error("DisabledException", f"{key.arn} is disabled.")
    if key.key_state != "Enabled":
        raise _error("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    usage = key.key_usage or "ENCRYPT_DECRYPT"
    if usage != "ENCRYPT_DECRYPT" or (key.key_spec or "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
        raise _error(
            "InvalidKeyUsageException",
            f"{key.arn} key usage is {usage} which is not valid for {action.removeprefix('kms:')}.",
        )


def _error(code: str, message: str) -> Exception:
    from moto.core.exceptions import JsonRESTError

    error: Exception = JsonRESTError(code, message)
    return error
