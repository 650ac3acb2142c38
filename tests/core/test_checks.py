"""Each check is shown once catching its trap; a check without a row here fails the last test."""

import pytest

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.checks import ALL_CHECKS
from peagle_sm.core.plan import Context, Plan, make_plan
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, ROLE, STACK, TINY, found, plan_of, spec_of

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_LONG = "x" * 1025
_TO_ZERO = "lifecycle: {idle: scale-to-zero}"
_TWO_TYPES = "\nplacement: {instance_types: [ml.g7e.2xlarge, ml.g7e.4xlarge]}"
_NEURON = "\nplacement: {instance_types: [ml.inf2.xlarge]}"
_PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/one"
_RESERVED = f"placement: {{capacity_reservation_arn: '{_PLAN}'}}"
_OWN_ROLE = GPT.replace("role/peagle", "role/mine")
CONTAINER_SPEC = spec_of(CONTAINER)

TRAPS = [
    ("missing-fact", "error", TINY, "", AWS, "model_uri: found nothing"),
    ("missing-fact", "error", TINY, "", AWS, "head 'tiny-code-p-eagle' are missing"),
    ("missing-fact", "error", TINY, "", AWS, "vllm-cpu image"),
    (
        "missing-fact",
        "error",
        TINY,
        "speculation: {mode: eagle3}",
        LOCAL,
        "known for tiny-code: tiny-code-eagle3",
    ),
    ("missing-fact", "error", GPT, "speculation: {mode: eagle3}", AWS, "none is catalogued"),
    (
        "missing-fact",
        "error",
        TINY,
        "speculation: {draft_head: tiny-code-p-eagel}",
        LOCAL,
        "Did you mean 'tiny-code-p-eagle'?",
    ),
    ("missing-fact", "error", TINY, "source: jumpstart", LOCAL, "source: found 'jumpstart'"),
    ("missing-fact", "error", GPT, "placement: {region: eu-noth-1}", AWS, "Did you mean 'eu-north-1'?"),
    (
        "local-roles",
        "info",
        _OWN_ROLE,
        "",
        LOCAL,
        f"replaced by the local server's {ROLE}",
    ),
    (
        "local-region",
        "info",
        TINY,
        "placement: {region: eu-west-1}",
        LOCAL,
        "eu-west-1 is replaced by the local server's us-east-1",
    ),
    ("region-name", "warning", TINY, "placement: {region: eu-noth-1}", LOCAL, "Did you mean 'eu-north-1'?"),
    (
        "region-name",
        "warning",
        GPT,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nplacement: {{region: xx-east-9}}",
        AWS,
        "'xx-east-9' is not a known region",
    ),
    ("stand-in-weights", "info", TINY, "", LOCAL, "small stand-in weights"),
    (
        "memory",
        "error",
        CONTAINER,
        "placement: {instance_types: [ml.g6.xlarge]}\nserving: {max_model_len: 131072}",
        AWS,
        "does not fit: needs 25.0 GB of 24 GB",
    ),
    (
        "memory",
        "info",
        CONTAINER,
        "placement: {instance_types: [ml.g7.2xlarge]}",
        AWS,
        "memory of ml.g7.2xlarge",
    ),
    ("context-length", "error", TINY, "serving: {max_model_len: 9000}", LOCAL, "at most 8192"),
    (
        "trained-depth",
        "error",
        TINY,
        "speculation: {num_speculative_tokens: 13}",
        LOCAL,
        "found 13; allowed: 1 to 12",
    ),
    (
        "trained-depth",
        "info",
        TINY,
        "speculation: {mode: eagle3, draft_head: tiny-code-eagle3, num_speculative_tokens: 13}",
        LOCAL,
        "tiny-code-eagle3 was unrolled 7 deep in training; found 13",
    ),
    (
        "trained-depth",
        "info",
        CONTAINER,
        "speculation: {draft_head: mine}",
        AWS,
        "mine was trained for is not known",
    ),
    (
        "head-fits",
        "error",
        TINY,
        "speculation: {draft_head: gpt-oss-20b-p-eagle}",
        LOCAL,
        "a head of gpt-oss-20b",
    ),
    ("head-fits", "error", TINY, "speculation: {draft_head: tiny-code-eagle3}", LOCAL, "an EAGLE-3 head"),
    ("ignored-speculation", "info", TINY, "speculation: {mode: none, draft_head: x}", LOCAL, "no effect"),
    ("image-version", "warning", CONTAINER, f"{_VLLM}:latest", AWS, "is not known"),
    (
        "flag-versions",
        "error",
        CONTAINER,
        f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        AWS,
        "0.16.0",
    ),
    (
        "flag-versions",
        "error",
        CONTAINER,
        f"{_VLLM}:0.12.0-gpu-py312-cu129",
        AWS,
        "SM_VLLM_MODEL needs vLLM 0.13.0",
    ),
    (
        "flag-versions",
        "error",
        GPT,
        "serving: {env: {SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS: summary}}",
        AWS,
        "0.32.0 or newer",
    ),
    (
        "request-metrics",
        "error",
        TINY,
        "speculation: {mode: none}\nserving: {env: {SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS: summary}}",
        LOCAL,
        "only with speculation on",
    ),
    ("json-quotes", "warning", CONTAINER, f"{_VLLM}:0.22.1-gpu-py312-cu130", AWS, "stripping quotes"),
    ("json-quotes", "warning", CONTAINER, f"{_VLLM}:server-sagemaker-cuda-v2.0", AWS, "stripping quotes"),
    (
        "json-quotes",
        "error",
        CONTAINER,
        f"{_VLLM}:0.22.1-gpu-py312-cu130\nserving: {{env: {{PROCESS_AUTO_RECOVERY: true}}}}",
        AWS,
        "must be false",
    ),
    ("supervisor-characters", "warning", CONTAINER, "serving: {env: {SM_VLLM_X: '50%'}}", AWS, "SM_VLLM_X"),
    ("draft-dropped", "error", GPT, "placement: {instance_types: [ml.g5.12xlarge]}", AWS, "silently off"),
    ("advisories", "warning", GPT, "", AWS, "0.18.0 is below 0.33.0"),
    (
        "environment-limits",
        "error",
        GPT,
        f"serving: {{env: {{SM_VLLM_X: {_LONG}}}}}",
        AWS,
        "found 1025 bytes",
    ),
    (
        "environment-limits",
        "error",
        GPT,
        f"serving: {{env: {{SM_VLLM_X: {'é' * 513}}}}}",
        AWS,
        "found 1026 bytes",
    ),
    (
        "environment-limits",
        "error",
        TINY,
        f"serving: {{env: {{{', '.join(f'A{i}: x' for i in range(96))}}}}}",
        LOCAL,
        "101 entries",
    ),
    (
        "environment-limits",
        "error",
        TINY,
        f"serving: {{env: {{{', '.join(f'A{i}: {_LONG[1:]}' for i in range(32))}}}}}",
        LOCAL,
        "bytes in all",
    ),
    (
        "environment-owned",
        "error",
        GPT,
        "serving: {env: {SM_VLLM_MAX_MODEL_LEN: 1}}",
        AWS,
        "serving.max_model_len",
    ),
    ("environment-port", "error", GPT, "serving: {env: {SM_VLLM_PORT: 8000}}", AWS, "port 8080"),
    ("environment-empty", "error", GPT, "serving: {env: {SM_VLLM_X: ''}}", AWS, "an empty value"),
    (
        "instance-type",
        "error",
        CONTAINER,
        "placement: {instance_types: [ml.g7e.3xlarge]}",
        AWS,
        "found 'ml.g7e.3xlarge'",
    ),
    ("jumpstart-instance", "warning", GPT, "placement: {instance_types: [ml.g6e.xlarge]}", AWS, "not among"),
    (
        "instance-families",
        "error",
        GPT,
        "placement: {instance_types: [ml.g7e.2xlarge, ml.g5.12xlarge]}",
        AWS,
        "different images",
    ),
    (
        "host-ami",
        "error",
        CONTAINER,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        AWS,
        "CUDA 13.0 needs 580",
    ),
    (
        "host-ami",
        "error",
        GPT,
        "placement: {inference_ami_version: al2-ami-sagemaker-inference-gpu-3-1}",
        AWS,
        "of ml.g7e.2xlarge needs 570",
    ),
    ("host-ami", "error", GPT, "placement: {inference_ami_version: al2023}", AWS, "found 'al2023'"),
    ("host-ami-unknown", "warning", CONTAINER, f"{_VLLM}:0.30.0", AWS, "CUDA version"),
    ("gpus", "warning", GPT, "placement: {instance_types: [ml.p5.48xlarge]}", AWS, "7 of the 8 GPUs"),
    ("gpus", "error", GPT, "serving: {tensor_parallel_size: 2}", AWS, "ml.g7e.2xlarge has 1 GPUs"),
    (
        "tensor-parallel-degree",
        "warning",
        GPT,
        "placement: {instance_types: [ml.p5.48xlarge]}",
        AWS,
        "TENSOR_PARALLEL_DEGREE=8 beside SM_VLLM_TENSOR_PARALLEL_SIZE=1",
    ),
    (
        "capacity-reservation",
        "warning",
        GPT,
        "placement: {capacity_reservation_arn: 'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p'}",
        AWS,
        "stops serving when it ends",
    ),
    (
        "capacity-reservation",
        "error",
        CONTAINER,
        "placement: {capacity_reservation_arn: 'arn:aws:sagemaker:us-east-1:123456789012:training-plan/p', "
        "instance_types: [ml.g7e.2xlarge, ml.p5.4xlarge]}",
        AWS,
        "one instance type",
    ),
    ("kms-local-storage", "error", GPT, "security: {kms_key_id: alias/mine}", AWS, "local storage"),
    ("network-isolation", "warning", GPT, "security: {network_isolation: false}", AWS, "is off"),
    ("price", "warning", CONTAINER, "placement: {instance_types: [ml.p5.4xlarge]}", AWS, "no price known"),
    ("price", "warning", GPT, "placement: {instance_types: [ml.p6-b200.48xlarge]}", AWS, "NOT SageMaker's"),
    (
        "budget",
        "error",
        GPT,
        "lifecycle: {budget_usd: 10}",
        AWS,
        "8 h can cost 33.60 USD; budget_usd allows 10.00",
    ),
    (
        "budget",
        "error",
        CONTAINER,
        "placement: {instance_types: [ml.p5.4xlarge]}\nlifecycle: {budget_usd: 10}",
        AWS,
        "cannot be held",
    ),
    ("needs-a-stack", "error", GPT, "autoscaling: {max_instances: 2}", AWS, "only a stack carries it"),
    ("needs-a-stack", "error", GPT, _TO_ZERO, AWS, "allowed here: turn-off"),
    ("scale-to-zero", "warning", GPT, _TO_ZERO, STACK, "until capacity is back"),
    ("scale-to-zero", "error", GPT, f"{_TO_ZERO}{_TWO_TYPES}", STACK, "several are listed"),
    ("scale-to-zero", "error", GPT, f"{_TO_ZERO}{_NEURON}", STACK, "GPUs ml.inf2.xlarge has is not known"),
    ("scale-to-zero", "warning", GPT, f"{_TO_ZERO}\n{_RESERVED}", STACK, "paid for at zero instances too"),
    ("second-fleet", "info", GPT, "", STACK, "1 x ml.g7e.2xlarge beside the first, for 4.20 USD/hour more"),
    ("second-fleet", "warning", GPT, _RESERVED, STACK, "runs a second fleet"),
    ("stack-role", "error", _OWN_ROLE, "", STACK, "the guard's own role peagle-execution-us-east-1"),
    ("stack-role", "error", CONTAINER.replace("role/peagle", "role/mine"), "", STACK, "may pass no other"),
    ("stack-role", "warning", _OWN_ROLE, "speculation: {mode: none}", STACK, "named peagle-execution-*"),
]


@pytest.mark.parametrize(
    ("check", "severity", "base", "extra", "context", "said"),
    TRAPS,
    ids=[f"{row[0]}-{index}" for index, row in enumerate(TRAPS)],
)
def test_the_trap_is_found(
    check: str, severity: str, base: str, extra: str, context: Context, said: str
) -> None:
    findings = found(plan_of(base, extra, context), check)
    assert any(said in finding.message and finding.severity == severity for finding in findings), findings
    assert all(finding.next_step and finding.source for finding in findings)


def test_a_plain_local_plan_has_nothing_to_complain_about() -> None:
    plan = plan_of(TINY, context=LOCAL)
    assert {finding.check for finding in plan.findings} == {"advisories", "stand-in-weights"}


def test_errors_come_first() -> None:
    findings = plan_of(GPT, "serving: {env: {SM_VLLM_PORT: 1}}").findings
    assert [finding.severity for finding in findings] == ["error", "warning"]


def test_what_is_the_same_here_as_on_aws_is_not_told() -> None:
    plan = plan_of(GPT, "placement: {region: us-east-1}", LOCAL)
    assert not {"local-roles", "local-region", "region-name"} & {finding.check for finding in plan.findings}


def test_on_aws_nothing_local_is_told() -> None:
    findings = plan_of(GPT, "placement: {region: eu-west-1}").findings
    assert not {"local-roles", "local-region", "region-name"} & {finding.check for finding in findings}


def test_a_region_that_is_named_missing_is_not_told_twice() -> None:
    plan = plan_of(GPT, "placement: {region: eu-noth-1}")
    assert found(plan, "missing-fact")
    assert not found(plan, "region-name")


def test_of_a_head_that_does_not_fit_the_depth_is_not_told() -> None:
    plan = plan_of(TINY, "speculation: {draft_head: tiny-code-eagle3}", LOCAL)
    assert plan.spec.speculation.mode == "p-eagle"
    assert [finding.check for finding in plan.findings if finding.severity == "error"] == ["head-fits"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ml.g7e.3xlarge", "Did you mean 'ml.g7e."),
        ("g7e.2xlarge", "Did you mean 'ml.g7e.2xlarge'?"),
        ("ML.P5.48XLARGE", "Did you mean 'ml.p5.48xlarge'?"),
        ("ml.p5em.48xlarge", "Did you mean 'ml.p5e"),
    ],
)
def test_a_type_almost_right_is_put_right(name: str, said: str) -> None:
    (finding,) = found(_with_type(name), "instance-type")
    assert said in finding.message


@pytest.mark.parametrize("name", ["ml.g99.huge", "huge", "ml.", "gpu"])
def test_a_type_like_none_is_answered_with_a_few_that_have_a_gpu(name: str) -> None:
    (finding,) = found(_with_type(name), "instance-type")
    assert "Did you mean" not in finding.message
    assert "With one GPU: ml.g5.xlarge, ml.g6.xlarge, ml.g6e.xlarge, ml.g7e.2xlarge" in finding.message


def _with_type(name: str) -> Plan:
    placement = CONTAINER_SPEC.placement.model_copy(update={"instance_types": [name]})
    return make_plan(CONTAINER_SPEC.model_copy(update={"placement": placement}), AWS)


def test_every_check_explains_itself_and_is_tried_here() -> None:
    names = [check.id for check in ALL_CHECKS]
    assert len(set(names)) == len(names)
    for check in ALL_CHECKS:
        assert check.what
        assert check.why
        assert check.source
        assert check.remedy
    assert set(names) - {row[0] for row in TRAPS} == {"licence"}  # no gated model is catalogued: tried below


@pytest.mark.parametrize(("accepted", "count"), [("false", 1), ("true", 0)])
def test_a_gated_model_needs_its_licence_accepted(accepted: str, count: int) -> None:
    catalog = load_catalog()
    gated = catalog.jumpstart["gpt-oss-20b"].model_copy(update={"gated": True})
    catalog = catalog.model_copy(update={"jumpstart": {"gpt-oss-20b": gated}})
    plan = make_plan(spec_of(GPT, f"accept_eula: {accepted}"), AWS, catalog)
    assert len(found(plan, "licence")) == count
