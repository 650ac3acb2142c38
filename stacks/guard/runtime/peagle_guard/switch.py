"""The switch's handler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from peagle_guard import settings as environment
from peagle_guard.switch_aws import BotoSwitch
from peagle_guard.turning import turn


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Turn as the event asks; a refusal is an answer, an error of AWS is raised."""
    answer = turn(BotoSwitch(environment.load()), event)
    print(json.dumps({"event": dict(event), "answer": answer}))
    return answer
