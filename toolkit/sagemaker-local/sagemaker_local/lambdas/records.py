"""Reader of moto's records of deployed functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local.control import ApiError
from sagemaker_local.other_services.moto import Moto

_ARN = re.compile(
    r"(?:arn:[^:]+:lambda:(?P<region>[^:]*):)?(?:(?P<account>\d{12}):)?(?:function:)?(?P<name>.+)"
)


@dataclass(frozen=True)
class Function:
    """A deployed function.

    Attributes:
        code: the zip file.
        code_hash: of the zip file, as Lambda gives it (SHA-256, base 64).
        timeout_s: seconds that an invocation may take.
        reserved: the most invocations at once; 0 refuses all, None sets no limit.
        log_group: of its output in CloudWatch Logs.
        role: the ARN of its execution role, by which Lambda writes the log.
        retries: how often an asynchronous event is tried again after an error of the function.
        oldest_s: how long an asynchronous event is kept, in seconds.
        dead_letter_arn: the queue or topic for events that could not be handled.
    """

    name: str
    arn: str
    handler: str
    runtime: str
    code: bytes = field(repr=False)
    code_hash: str
    environment: Mapping[str, str]
    timeout_s: int
    memory_mb: int
    reserved: int | None
    log_group: str
    role: str
    retries: int = 2
    oldest_s: int = 21_600
    dead_letter_arn: str | None = None


class Functions:
    """The functions in moto."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto

    def find(self, name_or_arn: str) -> Function:
        """Read a function by name or ARN, with or without a qualifier.

        Raises:
            ApiError: ResourceNotFoundException, as Lambda words it.
        """
        match = _ARN.fullmatch(name_or_arn)
        name = match["name"] if match else name_or_arn
        try:
            kept = self._moto.backend("lambda").get_function(name)
        except Exception as error:  # moto raises one class for functions and another for qualifiers
            arn = f"arn:aws:lambda:{self._moto.region}:{self._moto.account}:function:{name}"
            raise ApiError("ResourceNotFoundException", f"Function not found: {arn}", 404) from error
        return _read(kept)


def _read(kept: Any) -> Function:
    events = kept.event_invoke_config[0].config if kept.event_invoke_config else {}
    reserved = kept.reserved_concurrency
    config = getattr(kept, "peagle_config", {})
    name = kept.function_name
    return Function(
        name=name,
        log_group=(config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{name}",
        arn=kept.function_arn,
        role=str(kept.role),
        handler=str(kept.handler),
        runtime=str(kept.run_time),
        code=bytes(getattr(kept, "code_bytes", b"")),
        code_hash=str(kept.code_sha_256),
        environment={key: str(value) for key, value in (kept.environment_vars or {}).items()},
        timeout_s=int(kept.timeout),
        memory_mb=int(kept.memory_size),
        reserved=None if reserved is None else int(reserved),
        retries=int(events.get("MaximumRetryAttempts", 2)),
        oldest_s=int(events.get("MaximumEventAgeInSeconds", 21_600)),
        dead_letter_arn=(config.get("DeadLetterConfig") or {}).get("TargetArn") or None,
    )
