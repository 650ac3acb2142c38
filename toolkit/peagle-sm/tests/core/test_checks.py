"""Every registered check against its cases (tests/core/checks), and how their findings stand together."""

from __future__ import annotations

import re

import pytest

from peagle_sm.core.checks import ALL_CHECKS, Check
from peagle_sm.core.planning import Plan, make_plan
from tests.core.checks.cases import Case, all_cases, cases_by_subject, checks_by_id
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, TINY, found, plan_of, spec_of

CONTAINER_SPEC = spec_of(CONTAINER)
WORST = {"info": 0, "warning": 1, "error": 2}


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.check)
def test_a_check_says_what_it_must_and_no_more(case: Case) -> None:
    notes = case.notes()
    if not case.fails:
        assert not notes
        return
    check = checks_by_id()[case.check]
    assert any(case.text in note.message and note.severity == case.severity for note in notes), notes
    assert all(note.message and (note.next_step or check.remedy) for note in notes)


def test_the_cases_of_a_check_are_in_the_file_named_after_its_module() -> None:
    modules = {check.id: check.look.__module__.rpartition(".")[2] for check in ALL_CHECKS}
    wrong = [(subject, case.check) for subject, case in cases_by_subject() if modules[case.check] != subject]
    assert not wrong


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.id)
def test_a_check_explains_itself_and_has_a_case_that_fails_and_one_that_passes(check: Check) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", check.id)
    assert check.what
    assert check.why
    assert check.source
    assert check.remedy
    assert check.url.startswith("https://") or check.source.startswith("this project"), "name its public page"
    cases = [case for case in all_cases() if case.check == check.id]
    assert [case for case in cases if not case.fails], "no case that passes: add one in tests/core/checks"
    failing = [case.severity for case in cases if case.severity]
    assert failing, "no case that fails: add one in tests/core/checks"
    assert max(failing, key=WORST.__getitem__) == check.severity, "severity is the worst that it reports"


def test_ids_are_unique_and_every_case_is_of_a_check() -> None:
    ids = [check.id for check in ALL_CHECKS]
    assert len(set(ids)) == len(ids)
    assert {case.check for case in all_cases()} == set(ids)


def test_a_plain_local_plan_has_nothing_to_complain_about() -> None:
    plan = plan_of(TINY, context=LOCAL)
    assert not plan.findings
    shown = str(plan)
    assert "Findings" not in shown
    assert shown.count("figures say nothing") == 1


def test_errors_come_first() -> None:
    findings = plan_of(GPT, "serving: {env: {SM_VLLM_PORT: 1}}").findings
    severities = [finding.severity for finding in findings]
    assert severities == ["error", *["warning"] * (len(severities) - 1)]


def test_an_unknown_region_is_a_missing_fact() -> None:
    assert found(plan_of(GPT, "placement: {region: eu-noth-1}"), "missing-fact")


@pytest.mark.parametrize(
    ("speculation", "staged"),
    [("mode: p-eagle", True), ("draft_head: qwen3-8b-p-eagle", True), ("mode: eagle3", False)],
)
def test_the_first_plan_of_a_model_from_the_hub_names_the_command_that_copies_it(
    speculation: str, staged: bool
) -> None:
    findings = found(
        plan_of("name: first\nmodel: qwen3-8b\n", f"speculation: {{{speculation}}}"), "missing-fact"
    )
    commands = ["peagle-sm heads stage qwen3-8b" in str(finding.next_step) for finding in findings[:2]]
    assert commands == [staged, staged]


def test_of_a_head_that_does_not_fit_the_depth_is_not_told() -> None:
    plan = plan_of(TINY, "speculation: {draft_head: tiny-code-eagle3}", LOCAL)
    assert plan.spec.speculation.mode == "p-eagle"
    assert [finding.check for finding in plan.findings if finding.severity == "error"] == ["head-fits"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ml.g7e.3xlarge", "Did you mean 'ml.g7e."),
        ("g7e.2xlarge", "Did you mean 'ml.g7e.2xlarge'?"),
        ("ML.P5.48XLARGE", "Did you mean 'ml.p5.48xlarge'?"),
        ("ml.p5em.48xlarge", "Did you mean 'ml.p5e"),
    ],
)
def test_a_type_almost_right_is_put_right(name: str, message: str) -> None:
    (finding,) = found(_with_type(name), "instance-type")
    assert message in finding.message


def _with_type(name: str) -> Plan:
    placement = CONTAINER_SPEC.placement.model_copy(update={"instance_types": [name]})
    return make_plan(CONTAINER_SPEC.model_copy(update={"placement": placement}), AWS)
