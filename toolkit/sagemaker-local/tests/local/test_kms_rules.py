"""KMS as the local server takes it: keys that cannot be used refuse, with AWS's codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.serving import Server

CONTEXT = {"EncryptionContext": {"peagle-sm": "traffic"}}


def new_key(server: Server, **more: Any) -> str:
    return str(server.client("kms").create_key(**more)["KeyMetadata"]["KeyId"])


def generated(server: Server, key: str) -> dict[str, Any]:
    return dict(server.client("kms").generate_data_key(KeyId=key, KeySpec="AES_256", **CONTEXT))


def code_of(action: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as raised:
        action()
    return str(raised.value.response["Error"]["Code"])


def test_a_data_key_is_decrypted_with_its_key_and_context_only(server: Server) -> None:
    kms, key = server.client("kms"), new_key(server)
    data_key = generated(server, key)
    blob = {"CiphertextBlob": data_key["CiphertextBlob"]}
    assert kms.decrypt(**blob, **CONTEXT)["Plaintext"] == data_key["Plaintext"]
    assert kms.decrypt(**blob, **CONTEXT, KeyId=key)["KeyId"] == data_key["KeyId"]
    assert code_of(lambda: kms.decrypt(**blob)) == "InvalidCiphertextException"
    assert code_of(lambda: kms.decrypt(**blob, **CONTEXT, KeyId=new_key(server))) == "IncorrectKeyException"


def test_keys_that_cannot_be_used_refuse(server: Server) -> None:
    kms, key = server.client("kms"), new_key(server)
    blob = {"CiphertextBlob": generated(server, key)["CiphertextBlob"]}

    def codes() -> set[str]:
        return {
            code_of(lambda: generated(server, key)),
            code_of(lambda: kms.decrypt(**blob, **CONTEXT)),
            code_of(lambda: kms.decrypt(**blob, **CONTEXT, KeyId=key)),
        }

    kms.disable_key(KeyId=key)
    assert codes() == {"DisabledException"}
    kms.enable_key(KeyId=key)
    kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    assert codes() == {"KMSInvalidStateException"}
    kms.cancel_key_deletion(KeyId=key)
    kms.enable_key(KeyId=key)
    denial = {"Effect": "Deny", "Principal": "*", "Action": "kms:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [denial]})
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy)
    assert codes() == {"AccessDeniedException"}
    signing = new_key(server, KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")
    assert code_of(lambda: generated(server, signing)) == "InvalidKeyUsageException"
