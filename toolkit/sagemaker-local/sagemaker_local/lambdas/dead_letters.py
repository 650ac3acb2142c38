"""Dead-letter queue and on-failure destination of failed asynchronous events."""

from __future__ import annotations

import json
import logging
from datetime import UTC
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.events import Event
from sagemaker_local.lambdas.runner import Outcome
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import send_to_queue

log = logging.getLogger(__name__)

_LONGEST_MESSAGE = 1024


class DeadLetters:
    """Writes to queues and topics in moto."""

    def __init__(self, moto: Moto, clock: LocalClock) -> None:
        self._moto = moto
        self._clock = clock

    def give_up(self, event: Event, answer: Outcome | ApiError, condition: str) -> None:
        """Report an event that will not be retried; ``condition`` as in a destination's record."""
        function = event.function
        log.warning("function %s: event %s failed: %s", function.name, event.request_id, condition)
        if function.dead_letter_arn:
            attributes = {
                "RequestID": event.request_id,
                "ErrorCode": "200" if isinstance(answer, Outcome) else str(answer.status),
                "ErrorMessage": _message(answer)[:_LONGEST_MESSAGE],
            }
            self._deliver(function.dead_letter_arn, json.dumps(event.payload), attributes)
        if function.on_failure_arn:
            record = json.dumps(self._record(event, answer, condition))
            self._deliver(function.on_failure_arn, record, {})

    def _record(self, event: Event, answer: Outcome | ApiError, condition: str) -> dict[str, Any]:
        record: dict[str, Any] = {
            "version": "1.0",
            "timestamp": self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "requestContext": {
                "requestId": event.request_id,
                "functionArn": f"{event.function.arn}:$LATEST",
                "condition": condition,
                "approximateInvokeCount": event.attempts,
            },
            "requestPayload": event.payload,
        }
        if isinstance(answer, Outcome):
            record["responseContext"] = {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": answer.error,
            }
            record["responsePayload"] = json.loads(answer.payload)
        return record

    def _deliver(self, arn: str, body: str, attributes: dict[str, str]) -> None:
        try:
            if ":sns:" in arn:
                sent = {name: {"Type": "String", "Value": value} for name, value in attributes.items()}
                self._moto.backend("sns").publish(body, arn=arn, message_attributes=sent)
            else:
                send_to_queue(self._moto, arn, body, attributes)
        except Exception:  # moto's stores raise many classes; AWS counts it and goes on, and so do we
            log.exception("delivery to %s failed", arn)


def _message(answer: Outcome | ApiError) -> str:
    if isinstance(answer, ApiError):
        return answer.message
    return str(json.loads(answer.payload).get("errorMessage", ""))
