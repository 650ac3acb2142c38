"""Every cell of the engine matrix: version, mode and kind of image is accepted, warned or refused.

The expected outcomes are written here from vLLM's source, not computed from the data under test.
"""

from __future__ import annotations

import itertools

import pytest

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.checks import SPEC_CHECKS
from peagle_sm.core.engines import RUNNER_VARIABLE
from peagle_sm.core.plan.environment import environment
from peagle_sm.core.plan.resolve import Draft, resolve
from tests.core.support import AWS, CONTAINER, LOCAL, TINY, spec_of

CATALOG = load_catalog()
ECR = "dkr.ecr.us-east-1.amazonaws.com"
# V1 unless the variable is 1: VLLM_USE_V2_MODEL_RUNNER defaults to "0" in vllm/envs.py.
V1_BY_DEFAULT = """
0.16.0 0.17.0 0.17.1 0.18.0 0.18.1 0.19.0 0.19.1 0.20.0 0.20.1 0.20.2 0.21.0
""".split()  # noqa: SIM905
# V2 by _is_default_v2_model_runner_model (0.22 to 0.28), then for every model.
V2_POSSIBLE = """
0.22.0 0.22.1 0.23.0 0.24.0 0.25.0 0.25.1 0.26.0 0.27.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0
""".split()  # noqa: SIM905
KNOWN = V1_BY_DEFAULT + V2_POSSIBLE
UNKNOWN = {"0.15.1": "0.16.0", "0.12.0": "0.16.0", "0.26.1": "0.26.0", "0.33.1": "0.33.0", "0.40.0": "0.33.0"}
MODES = ("none", "eagle3", "p-eagle")
KINDS = ("aws", "lmi", "own", "cpu")
LOOKED_AT = {"engine-known", "flag-versions", "v2-model-runner", "draft-dropped", "extra-arguments"}


def draft_of(
    version: str, mode: str, kind: str, runner: str | None = None, catalog: Catalog = CATALOG
) -> Draft:
    images = {
        "aws": f"763104351884.{ECR}/vllm:{version}-gpu-py312",
        "lmi": f"763104351884.{ECR}/djl-inference:0.36.0-lmi28.0.0-cu130",
        "own": f"123456789012.{ECR}/vllm:{version}-gated",
        "cpu": f"123456789012.{ECR}/vllm:{version}-cpu",
    }
    env = f"\nserving: {{env: {{{RUNNER_VARIABLE}: '{runner}'}}}}" if runner is not None else ""
    head = "" if mode == "none" or kind == "cpu" else ", draft_head: mine"
    extra = f"image: {images[kind]}\nspeculation: {{mode: {mode}{head}, num_speculative_tokens: 3}}{env}"
    if mode == "none":
        extra = f"image: {images[kind]}\nspeculation: {{mode: none}}{env}"
    base, context = (TINY, LOCAL) if kind == "cpu" else (CONTAINER, AWS)
    return resolve(spec_of(base, extra), context, catalog)


def outcome(draft: Draft) -> set[tuple[str, str]]:
    return {
        (check.id, finding.severity)
        for check in SPEC_CHECKS
        if check.id in LOOKED_AT
        for finding in check.findings(draft)
    }


@pytest.mark.parametrize(("version", "mode", "kind"), list(itertools.product(KNOWN, MODES, KINDS)))
def test_a_known_version_is_accepted_unless_the_image_drops_the_head(
    version: str, mode: str, kind: str
) -> None:
    draft = draft_of(version, mode, kind)
    refused = kind == "lmi" and mode != "none"
    assert outcome(draft) == ({("draft-dropped", "error")} if refused else set())
    pinned = version in V2_POSSIBLE and mode != "none" and kind != "lmi"
    assert environment(draft).get(RUNNER_VARIABLE) == ("0" if pinned else None)


@pytest.mark.parametrize(
    ("version", "mode", "kind"), list(itertools.product(KNOWN, MODES, ("aws", "own", "cpu")))
)
def test_v2_on_request_is_refused_for_p_eagle_and_on_a_cpu(version: str, mode: str, kind: str) -> None:
    draft = draft_of(version, mode, kind, runner="1")
    refused = mode == "p-eagle" or kind == "cpu"
    assert outcome(draft) == ({("v2-model-runner", "error")} if refused else set())
    assert environment(draft)[RUNNER_VARIABLE] == "1"


@pytest.mark.parametrize(
    ("version", "mode", "kind"), list(itertools.product(UNKNOWN, MODES, ("aws", "own", "cpu")))
)
def test_an_unknown_version_is_a_warning_with_the_nearest(version: str, mode: str, kind: str) -> None:
    draft = draft_of(version, mode, kind)
    expected = {("engine-known", "warning")}
    if version == "0.12.0" or (version == "0.15.1" and mode == "p-eagle"):
        expected.add(("flag-versions", "error"))
    assert outcome(draft) == expected
    (finding,) = next(check for check in SPEC_CHECKS if check.id == "engine-known").findings(draft)
    assert f"as in {UNKNOWN[version]}, the nearest" in finding.message
    pinned = UNKNOWN[version] in V2_POSSIBLE and mode != "none"
    assert environment(draft).get(RUNNER_VARIABLE) == ("0" if pinned else None)


def test_the_matrix_has_exactly_these_versions() -> None:
    assert [row.version for row in CATALOG.engines.versions] == KNOWN


@pytest.mark.parametrize("value", ["false", "", "yes", "2"])
@pytest.mark.parametrize("mode", MODES)
def test_a_runner_that_vllm_cannot_read_is_refused(value: str, mode: str) -> None:
    assert outcome(draft_of("0.32.0", mode, "own", runner=value)) == {("v2-model-runner", "error")}


def test_a_version_with_only_v2_and_no_parallel_drafting_is_refused_for_p_eagle() -> None:
    assert outcome(draft_of("0.33.0", "p-eagle", "own", catalog=_only_v2("refused"))) == {
        ("v2-model-runner", "error")
    }
    for mode in ("none", "eagle3"):
        draft = draft_of("0.33.0", mode, "own", catalog=_only_v2("refused"))
        assert outcome(draft) == set()
        assert RUNNER_VARIABLE not in environment(draft)
    assert outcome(draft_of("0.33.0", "p-eagle", "own", runner="1", catalog=_only_v2("parallel"))) == set()


def _only_v2(p_eagle: str) -> Catalog:
    newest = CATALOG.engines.versions[-1].model_copy(
        update={"v1": False, "p_eagle_on_v2": p_eagle, "runners": dict.fromkeys(MODES, "v2")}
    )
    engines = CATALOG.engines.model_copy(update={"versions": (*CATALOG.engines.versions[:-1], newest)})
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
