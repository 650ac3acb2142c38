"""What differs between an endpoint and its spec, told field by field."""

from __future__ import annotations

import json

from peagle_sm.core.plan.payloads import Change, changes


def config(**fields: object) -> dict[str, object]:
    text = json.dumps({"method": "eagle3", "model": "/opt/ml/additional-model-data-sources/eagle", **fields})
    return {"Environment": {"SM_VLLM_SPECULATIVE_CONFIG": text, "OTHER": "{"}}


def test_what_differs_within_a_variables_json_is_told_by_its_field() -> None:
    found = config(num_speculative_tokens=11, parallel_drafting=True)
    path = "Environment.SM_VLLM_SPECULATIVE_CONFIG"
    assert changes(found, config(num_speculative_tokens=7, parallel_drafting=True)) == (
        Change(f"{path}.num_speculative_tokens", "11", "7"),
    )
    assert changes(found, config(num_speculative_tokens=11)) == (
        Change(f"{path}.parallel_drafting", "true", None),
    )
    assert changes({}, config(parallel_drafting=True))[1:] == (
        Change(f"{path}.method", None, "eagle3"),
        Change(f"{path}.model", None, "/opt/ml/additional-model-data-sources/eagle"),
        Change(f"{path}.parallel_drafting", None, "true"),
    )
