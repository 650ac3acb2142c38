"""Which model runner each version and mode gets. What a version accepts: tests/cli/test_engine_cells.py."""

from __future__ import annotations

import pytest

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.engines import RUNNER_VARIABLE
from peagle_sm.core.planning import make_plan
from tests.core.support import AWS, CONTAINER, bodies, spec_of

CATALOG = load_catalog()


def runner_of(version: str, mode: str, catalog: Catalog = CATALOG, variable: str = "") -> str | None:
    """Return the variable's value in the container, or "refused" where the plan refuses the runner."""
    head = "" if mode == "none" else ", draft_head: mine, num_speculative_tokens: 3"
    image = f"image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:{version}-gated"
    env = f"serving: {{env: {{{RUNNER_VARIABLE}: '{variable}'}}}}" if variable else ""
    spec = spec_of(CONTAINER, f"{image}\nspeculation: {{mode: {mode}{head}}}\n{env}")
    plan = make_plan(spec, AWS, catalog)
    errors = {finding.check for finding in plan.findings if finding.severity == "error"}
    if "v2-model-runner" in errors:
        return "refused"
    set_to: str | None = bodies(plan).model["PrimaryContainer"]["Environment"].get(RUNNER_VARIABLE)
    return set_to


# vLLM 0.22 is the first that may choose V2 by itself (vllm/envs.py: the variable is 0 before).
# An unknown version counts as the nearest known one.
@pytest.mark.parametrize(
    ("version", "mode", "runner"),
    [
        ("0.15.1", "eagle3", None),
        ("0.21.0", "p-eagle", None),
        ("0.22.0", "none", None),
        ("0.22.0", "eagle3", "0"),
        ("0.26.1", "p-eagle", "0"),
        ("0.33.0", "p-eagle", "0"),
        ("0.40.0", "eagle3", "0"),
    ],
)
def test_v1_is_asked_for_where_vllm_could_choose_v2(version: str, mode: str, runner: str | None) -> None:
    assert runner_of(version, mode) == runner


def test_a_version_with_only_v2_and_no_parallel_drafting_is_refused_for_p_eagle() -> None:
    assert runner_of("0.33.0", "p-eagle", _only_v2("refused")) == "refused"
    assert runner_of("0.33.0", "none", _only_v2("refused")) is None
    assert runner_of("0.33.0", "eagle3", _only_v2("refused")) is None
    assert runner_of("0.33.0", "p-eagle", _only_v2("parallel"), variable="1") == "1"


def _only_v2(p_eagle: str) -> Catalog:
    runners = dict.fromkeys(("none", "eagle3", "p-eagle"), "v2")
    changed = {"v1": False, "p_eagle_on_v2": p_eagle, "runners": runners}
    *older, newest = CATALOG.engines.versions
    engines = CATALOG.engines.model_copy(update={"versions": (*older, newest.model_copy(update=changed))})
    return CATALOG.model_copy(update={"engines": engines})


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("num_speculative_tokens_per_batch_size", "0.24.0", None),
        ("rejection_sample_method", "0.18.0", None),
        ("draft_sample_method", "0.21.0", None),
        ("speculative_token_tree", None, "0.20.2"),
        ("SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS", "0.29.0", None),
        (RUNNER_VARIABLE, None, None),
    ],
)
def test_since_when_a_setting_exists(name: str, since: str | None, until: str | None) -> None:
    support = CATALOG.engines.support(name)
    assert (support.since, support.until) == (since, until)
