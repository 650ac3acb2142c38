"""Alarms and dashboard: what they would do with the figures that CloudWatch gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peagle_gate import slice_counts
from peagle_gate.startup import read_settings
from peagle_sm.core.planning import make_plan
from peagle_sm.core.spec.endpoint_spec import parse_spec
from tests.core.support import bodies
from tests.stacks.support import (
    ACCOUNT,
    EMAIL,
    REGION,
    evaluated,
    one_template,
    plan_of,
    specs,
    template,
)

NAMES = sorted(specs())


def _alarms(name: str) -> dict[str, dict[str, Any]]:
    return {
        key: row["Properties"]
        for key, row in evaluated(template(name)).items()
        if row["Type"] == "AWS::CloudWatch::Alarm" and key != "FromZeroAlarm"
    }


def _expression(alarm: dict[str, Any]) -> str:
    (result,) = [query for query in alarm["Metrics"] if query["ReturnData"]]
    return str(result["Expression"])


def _stats(alarm: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {query["Id"]: query["MetricStat"] for query in alarm["Metrics"] if "MetricStat" in query}


def _dashboard(name: str) -> dict[str, Any]:
    document = json.loads(evaluated(template(name))["Dashboard"]["Properties"]["DashboardBody"])
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("name", NAMES)
def test_an_alarm_says_what_its_silence_means_and_speaks_to_the_topic(name: str) -> None:
    for key, alarm in _alarms(name).items():
        assert alarm["TreatMissingData"] in ("breaching", "notBreaching"), key
        assert len(alarm["AlarmDescription"]) > 60, key
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["<Alarms>"], key
        assert alarm["AlarmName"].startswith(f"Peagle-{name}-"), key


@pytest.mark.parametrize("name", NAMES)
def test_cloudwatch_can_evaluate_it(name: str) -> None:
    """The longest range is a day below an hour's period and a week otherwise; periods are whole minutes."""
    for key, alarm in _alarms(name).items():
        periods = {stat["Period"] for stat in _stats(alarm).values()}
        (period,) = periods
        assert period % 60 == 0, key
        assert period * alarm["EvaluationPeriods"] <= (86_400 if period < 3600 else 604_800), key
        assert alarm["DatapointsToAlarm"] <= alarm["EvaluationPeriods"], key


def test_the_alarms_of_an_endpoint() -> None:
    assert set(_alarms("gpt-oss-20b")) == {
        "Errors5xxAlarm",
        "ModelErrorsAlarm",
        "LatencyP99Alarm",
        "ParallelDraftingIneffectiveAlarm",
        "NoDraftsAlarm",
        "NoInstanceAlarm",
        "SpendAlarm",
    }


def test_nothing_is_said_of_drafts_where_there_are_none() -> None:
    assert {"NoDraftsAlarm", "ParallelDraftingIneffectiveAlarm"}.isdisjoint(_alarms("smollm2-none"))
    assert "NoDraftsAlarm" in _alarms("smollm2-eagle3")
    assert "ParallelDraftingIneffectiveAlarm" not in _alarms("smollm2-eagle3")
    assert "ParallelDraftingIneffectiveAlarm" not in _alarms("keyed"), "one token has no second position"


@pytest.mark.parametrize(
    ("name", "hours", "alarms"),
    [
        ("gpt-oss-20b", 9.4, False),  # 4.20 USD an hour; 80% of 50 USD are 40 USD
        ("gpt-oss-20b", 9.6, True),
        ("gemma-4-31b-it", 8.0, False),  # no budget: 8 hours at 4.20 USD are what was agreed to
        ("gemma-4-31b-it", 8.5, True),
        ("smollm2-p-eagle", 2.0, False),  # no price: hours are counted
        ("smollm2-p-eagle", 2.2, True),
        ("everything", 12.0, False),  # a figure every 10 seconds
        ("everything", 12.7, True),
    ],
)
def test_spend_is_counted_from_the_figures_of_the_instances(name: str, hours: float, alarms: bool) -> None:
    alarm = _alarms(name)["SpendAlarm"]
    every = plan_of(name).spec.metrics.publish_seconds
    reports = hours * 3600 / every
    spent = eval(_expression(alarm), {"reports": reports})
    assert (spent > alarm["Threshold"]) == alarms
    assert _stats(alarm)["reports"]["Stat"] == "SampleCount"
    assert _stats(alarm)["reports"]["Period"] >= plan_of(name).spec.lifecycle.max_lifetime_hours * 3600


def test_a_life_longer_than_a_week_is_watched_a_week_at_a_time() -> None:
    assert _stats(_alarms("zero")["SpendAlarm"])["reports"]["Period"] == 7 * 24 * 3600


def test_no_instance_is_told_only_of_an_endpoint_that_is_on_and_counts_from_its_first_minute() -> None:
    row = template("gpt-oss-20b")["Resources"]["NoInstanceAlarm"]
    assert row["Condition"] == "EndpointIsOn"
    assert row["DependsOn"] == ["Endpoint"]
    assert row["Properties"]["TreatMissingData"] == "breaching"
    assert "NoInstanceAlarm" not in _alarms("zero"), "at zero instances it is as it should be"


@pytest.mark.parametrize(
    ("key", "calm", "alarmed"),
    [
        ("LatencyP99Alarm", {"latency": 44e6}, {"latency": 46e6}),
        ("ModelErrorsAlarm", {"failed": 5, "invocations": 100}, {"failed": 6, "invocations": 100}),
        ("Errors5xxAlarm", {"failed": 0}, {"failed": 1}),
    ],
)
def test_where_the_line_is_drawn(key: str, calm: dict[str, float], alarmed: dict[str, float]) -> None:
    alarm = _alarms("gpt-oss-20b")[key]
    assert eval(_expression(alarm), calm) <= alarm["Threshold"]
    assert eval(_expression(alarm), alarmed) > alarm["Threshold"]


@pytest.mark.parametrize("name", NAMES)
def test_invocations_are_looked_for_where_sagemaker_writes_them(name: str) -> None:
    (dimensions,) = [
        {one["Name"]: one["Value"] for one in stat["Metric"]["Dimensions"]}
        for stat in _stats(_alarms(name)["LatencyP99Alarm"]).values()
    ]
    by_component = {"InferenceComponentName": "zero"}
    by_variant = {"EndpointName": name, "VariantName": "AllTraffic"}
    assert dimensions == (by_component if name == "zero" else by_variant)


@pytest.mark.parametrize("name", NAMES)
def test_the_topic_is_encrypted_and_hears_only_these_alarms_over_tls(name: str) -> None:
    on = evaluated(template(name))
    assert on["Alarms"]["Properties"]["KmsMasterKeyId"] == "<AlarmKey>.Arn"
    assert on["AlarmKey"]["Properties"]["EnableKeyRotation"] is True
    speak, tls = on["AlarmsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert speak["Condition"] == {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:Peagle-{name}-*"},
    }
    assert (tls["Effect"], tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert on["Email"]["Properties"]["Endpoint"] == EMAIL


@pytest.mark.parametrize("name", NAMES)
def test_the_log_group_is_the_one_that_sagemaker_writes_to_and_does_not_grow_for_ever(name: str) -> None:
    logs = evaluated(template(name))["Logs"]
    kind = "InferenceComponents" if name == "zero" else "Endpoints"
    assert logs["Properties"]["LogGroupName"] == f"/aws/sagemaker/{kind}/{name}"
    assert logs["Properties"]["RetentionInDays"] == 30


@pytest.mark.parametrize("name", NAMES)
def test_the_dashboard_fits_its_grid_and_shows_the_alarms_that_stay(name: str) -> None:
    widgets = _dashboard(name)["widgets"]
    cells = [
        (x, y)
        for widget in widgets
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(cells) == len(set(cells)), "two widgets in one place"
    assert {x for x, _ in cells} == set(range(24)), "the row is as wide as the page"
    (shown,) = [widget["properties"]["alarms"] for widget in widgets if widget["type"] == "alarm"]
    stay = {alarm["AlarmName"] for key, alarm in _alarms(name).items() if key != "NoInstanceAlarm"}
    assert shown == [
        f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{each.rpartition(':')[2]}" for each in shown
    ]
    assert {each.rpartition(":")[2] for each in shown} == stay


@pytest.mark.parametrize("name", NAMES)
def test_the_dashboards_expressions_name_metrics_of_their_own_widget(name: str) -> None:
    for widget in _dashboard(name)["widgets"]:
        entries = widget["properties"].get("metrics", [])
        ids = {entry[-1]["id"] for entry in entries if "id" in entry[-1] and "expression" not in entry[-1]}
        for entry in entries:
            if "expression" in entry[-1]:
                words = {word for word in entry[-1]["expression"].split() if word[0].isalpha()}
                assert words <= ids


def test_acceptance_length_is_one_more_than_the_accepted_tokens_of_a_draft() -> None:
    (length,) = [
        entry[0]["expression"]
        for widget in _dashboard("gpt-oss-20b")["widgets"]
        for entry in widget["properties"].get("metrics", [])
        if entry[0] == entry[-1] and entry[0].get("id") == "length"
    ]
    # 100 drafts of K = 3 tokens, 180 of them accepted
    assert eval(length, {"accepted": 180, "drafted": 300}) == pytest.approx(2.8)


def test_the_dashboard_says_how_to_call_and_how_to_turn_off() -> None:
    (text,) = [
        w["properties"]["markdown"] for w in _dashboard("gpt-oss-20b")["widgets"] if w["type"] == "text"
    ]
    for words in (
        "peagle-sm invoke gpt-oss-20b",
        "peagle-sm pause gpt-oss-20b",
        "4.2 USD/hour",
        "30 minutes",
    ):
        assert words in text


def sliced(slices: str) -> dict[str, Any]:
    """The stack of a small model that counts by these slices."""
    return one_template(parse_spec(f"name: sliced\nmodel: tiny-code\nmetrics: {{slices: {slices}}}"))


def test_a_fall_in_a_slice_is_an_alarm_over_the_gates_own_metric() -> None:
    resources = evaluated(sliced("['script=han,latin', 'label:team=search', format]"))
    alarm = resources["AcceptanceFellAlarm"]["Properties"]
    (fell,) = _stats(alarm).values()
    assert fell["Metric"] == {
        "Namespace": "peagle-sm/sliced",
        "MetricName": slice_counts.DRIFTING,
        "Dimensions": [],
    }
    assert fell["Stat"] == "Maximum"
    assert alarm["TreatMissingData"] == "notBreaching"
    assert "peagle-sm acceptance sliced --since 24h" in alarm["AlarmDescription"]
    assert "AcceptanceFellAlarm" not in _alarms("smollm2-p-eagle")


def test_the_dashboard_shows_each_listed_slice_by_the_gates_metrics() -> None:
    body = json.loads(
        evaluated(sliced("['script=han,latin', format]"))["Dashboard"]["Properties"]["DashboardBody"]
    )
    shown = {widget["properties"].get("title"): widget["properties"] for widget in body["widgets"]}
    lengths = shown["Acceptance length by slice: tokens a step"]["metrics"]
    assert [row[0]["label"] for row in lengths if isinstance(row[0], dict)] == [
        "script: han",
        "script: latin",
    ]
    series = {tuple(row[:4]) for row in lengths if isinstance(row[0], str)}
    assert series == {
        ("peagle-sm/sliced", name, slice_counts.SLICE, value)
        for name in (slice_counts.SLICE_ACCEPTED, slice_counts.SLICE_DRAFTS)
        for value in ("script: han", "script: latin")
    }
    fell = shown["Slices that the drift detector reports, and the largest fall (%)"]["metrics"]
    assert [row[1] for row in fell] == [
        slice_counts.DRIFTING,
        slice_counts.LARGEST_FALL,
        slice_counts.UNCOUNTED,
    ]
    assert "Slice" not in json.dumps(_dashboard("smollm2-p-eagle"))


def test_the_container_is_told_the_slices() -> None:
    spec = parse_spec("name: a\nmodel: tiny-code\nmetrics: {slices: [format, 'script=han']}")
    variables = bodies(make_plan(spec, plan_of("smollm2-p-eagle").context)).model["PrimaryContainer"][
        "Environment"
    ]
    assert variables["PEAGLE_GATE_SLICES"] == "format;script=han"
    assert read_settings(variables).slices == "format;script=han"
