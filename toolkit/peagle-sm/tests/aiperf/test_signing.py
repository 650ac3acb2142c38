"""Signatures, and credentials that are renewed once, before they end."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

from botocore.credentials import Credentials, RefreshableCredentials

from peagle_sm.aiperf.protocol import Signer

URL = "https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/e/invocations"


async def test_a_request_is_signed_as_the_sdk_signs_it() -> None:
    credentials = Credentials("key", "secret")
    headers = {
        "Content-Type": "application/json",
        "X-Amzn-SageMaker-Inference-Component": "ic",
        "User-Agent": "aiperf",
    }
    signed = await Signer(credentials, "us-east-1").sign(URL, headers, b"{}")
    assert "us-east-1/sagemaker/aws4_request" in signed["authorization"]
    assert "x-amzn-sagemaker-inference-component" in signed["authorization"]
    assert "user-agent" not in signed["authorization"]


async def test_credentials_near_their_end_are_renewed_once_and_beside_the_loop() -> None:
    renewed: list[threading.Thread] = []

    def keys(number: int, minutes: int) -> dict[str, str]:
        until = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
        return {
            "access_key": f"key{number}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": until,
        }

    def renew() -> dict[str, str]:
        renewed.append(threading.current_thread())
        return keys(len(renewed), 60)

    credentials = RefreshableCredentials.create_from_metadata(keys(0, 1), renew, "test")
    signer = Signer(credentials, "us-east-1")
    signed = await asyncio.gather(*(signer.sign(URL, {}, b"{}") for _ in range(8)))
    assert all("Credential=key1/" in one["authorization"] for one in signed)
    assert all(one["x-amz-security-token"] == "token" for one in signed)
    assert [thread is threading.main_thread() for thread in renewed] == [False]
