"""The guard stack's parameters and the conditions that follow from them; the same by every way of install."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnCondition, CfnParameter, Fn, ICfnConditionExpression, Stack

from stacks.guard.execution_role import HAS_BUCKETS
from stacks.guard.policies import HAS_ENCRYPTION_KEY, HAS_ENDPOINT_KEYS

HAS_EMAIL = "HasNoticesEmail"
RESERVES = "ReservesConcurrency"

_ARN_LIST = "CommaDelimitedList"


class Inputs:
    """Parameters by what they are for; every one has a default, so that none needs to be given."""

    def __init__(self, stack: Stack) -> None:
        """Add parameters and conditions to the stack."""
        self._stack = stack
        self.email = self._text(
            "NoticesEmail", "Who is told before and after an endpoint is turned off; empty: nobody by mail."
        )
        buckets = self._list(
            "ModelBucketArns", "ARNs of your buckets that hold models and draft heads, separated by commas."
        )
        self._text(
            "ImageRepository",
            "Your own container images in this account's ECR: a repository's name, * at its end allowed.",
            default="peagle-*",
            pattern=r"[a-z0-9][a-z0-9._/-]*\*?",
        )
        keys = self._list(
            "EndpointKeyArns", "ARNs of the KMS keys of your endpoints' volumes and of your model buckets."
        )
        self.key = self._text(
            "EncryptionKeyArn",
            "ARN of a KMS key for register, notices, dead letters and logs; empty: AWS's own keys.",
        )
        self._reserve = CfnParameter(
            stack,
            "ReserveConcurrency",
            allowed_values=["yes", "no"],
            default="yes",
            description="no: for a new account, whose quota of 10 concurrent executions leaves none.",
        )
        self._conditions(buckets, keys)

    def if_key(self, value: Any, otherwise: Any = None) -> Any:
        """Return ``value`` where the user gave an encryption key, else ``otherwise`` (nothing)."""
        return _either(HAS_ENCRYPTION_KEY, value, otherwise)

    def reserved(self, count: int) -> Any:
        """Return a function's reserved concurrency, unless the user declined."""
        return _either(RESERVES, count, None)

    def _conditions(self, buckets: CfnParameter, keys: CfnParameter) -> None:
        for name, parameter in ((HAS_BUCKETS, buckets), (HAS_ENDPOINT_KEYS, keys)):
            self._given(name, Fn.join("", parameter.value_as_list))
        for name, parameter in ((HAS_EMAIL, self.email), (HAS_ENCRYPTION_KEY, self.key)):
            self._given(name, parameter.value_as_string)
        wanted = Fn.condition_equals(self._reserve.value_as_string, "yes")
        CfnCondition(self._stack, RESERVES, expression=wanted)

    def _given(self, name: str, text: str) -> None:
        there: ICfnConditionExpression = Fn.condition_not(Fn.condition_equals(text, ""))
        CfnCondition(self._stack, name, expression=there)

    def _text(
        self, name: str, description: str, default: str = "", pattern: str | None = None
    ) -> CfnParameter:
        return CfnParameter(
            self._stack, name, default=default, description=description, allowed_pattern=pattern
        )

    def _list(self, name: str, description: str) -> CfnParameter:
        return CfnParameter(self._stack, name, type=_ARN_LIST, default="", description=description)


def _either(condition: str, value: Any, otherwise: Any) -> dict[str, Any]:
    other = {"Ref": "AWS::NoValue"} if otherwise is None else otherwise
    return {"Fn::If": [condition, value, other]}
