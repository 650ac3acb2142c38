"""Dead-letter queue or topic of failed asynchronous events."""

from __future__ import annotations

import json
import logging

from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.events import Event
from sagemaker_local.lambdas.runner import Outcome
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import send_to_queue

log = logging.getLogger(__name__)

_LONGEST_MESSAGE = 1024


class DeadLetters:
    """Writes to queues and topics in moto."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto

    def give_up(self, event: Event, answer: Outcome | ApiError, condition: str) -> None:
        """Report an event that will not be retried; ``condition`` says why."""
        function = event.function
        log.warning("function %s: event %s failed: %s", function.name, event.request_id, condition)
        if function.dead_letter_arn:
            attributes = {
                "RequestID": event.request_id,
                "ErrorCode": "200" if isinstance(answer, Outcome) else str(answer.status),
                "ErrorMessage": _message(answer)[:_LONGEST_MESSAGE],
            }
            self._deliver(function.dead_letter_arn, json.dumps(event.payload), attributes)

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
