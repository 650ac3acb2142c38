"""What differs between an endpoint and its spec, told field by field."""

from __future__ import annotations

import json

from peagle_sm.core.changes import Change
from peagle_sm.core.plan.changes import changes
from peagle_sm.core.resources.alarm import update_alarms
from peagle_sm.core.resources.endpoint import Canary, update_request


def config(**fields: object) -> dict[str, object]:
    text = json.dumps({"method": "eagle3", "model": "/opt/ml/additional-model-data-sources/eagle", **fields})
    return {"Environment": {"SM_VLLM_SPECULATIVE_CONFIG": text, "OTHER": "{"}}


def test_what_differs_within_a_variables_json_is_told_by_its_field() -> None:
    result = config(num_speculative_tokens=11, parallel_drafting=True)
    path = "Environment.SM_VLLM_SPECULATIVE_CONFIG"
    assert changes(result, config(num_speculative_tokens=7, parallel_drafting=True)) == (
        Change(f"{path}.num_speculative_tokens", "11", "7"),
    )
    assert changes(result, config(num_speculative_tokens=11)) == (
        Change(f"{path}.parallel_drafting", "true", None),
    )
    assert changes({}, config(parallel_drafting=True))[1:] == (
        Change(f"{path}.method", None, "eagle3"),
        Change(f"{path}.model", None, "/opt/ml/additional-model-data-sources/eagle"),
        Change(f"{path}.parallel_drafting", None, "true"),
    )


def _routing(canary: Canary | None) -> object:
    sent = update_request("demo", "demo-1", ["a"], canary, retain=True).parameters
    return sent["DeploymentConfig"]["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]


def test_a_canary_serves_a_share_first_and_without_one_all_traffic_moves_at_once() -> None:
    routing = _routing(Canary(10, 600))
    size = {"Type": "CAPACITY_PERCENT", "Value": 10}
    assert routing == {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": 600}
    assert _routing(None) == {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}


def test_the_alarm_on_acceptance_is_silent_without_data() -> None:
    result = update_alarms("demo", 2.34567)[1].parameters or {}
    assert (result["Namespace"], result["Threshold"], result["TreatMissingData"]) == (
        "peagle-sm/demo",
        2.3457,
        "notBreaching",
    )
