"""Page of the checks: the registry, and which check covers which known trap."""

from __future__ import annotations

from peagle_sm.core.checks import ALL_CHECKS, SPEC_CHECKS, Check

# What is known to go wrong, and the checks that look for it; without a check, where else it is met.
TRAPS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Quotes are stripped from JSON values (images 0.20.2 to 0.23.0, server v2.0)", ("json-quotes",), ""),
    ("A % or ' ;' in a value breaks the supervisor's command line", ("supervisor-characters",), ""),
    ("Host AMI and CUDA of the image do not match", ("host-ami", "host-ami-too-new", "host-ami-unknown"), ""),
    ("The LMI image drops the draft head in silence", ("draft-dropped",), ""),
    (
        "JumpStart resolves an older GPU to an LMI image",
        ("draft-dropped", "instance-families", "jumpstart-unaccelerated"),
        "",
    ),
    ("TENSOR_PARALLEL_DEGREE contradicts SM_VLLM_TENSOR_PARALLEL_SIZE", ("tensor-parallel-degree",), ""),
    ("accept_eula is false unless set", ("licence",), ""),
    (
        "The SDK's list of configs names the wrong image",
        (),
        "The plan resolves the CreateModel request itself.",
    ),
    (
        "An update rolls back and the endpoint is InService with its old config",
        (),
        "`deploy` and `status` compare.",
    ),
    (
        "Waiters give up while billing goes on; ListEndpoints has 10 a page",
        (),
        "`deploy` follows without a waiter.",
    ),
    ("DeleteEndpoint answers and deletes nothing", (), "`delete` looks until the endpoint is gone."),
    ("Only SM_VLLM_* is read; OPTION_* by the LMI image alone", ("environment-unread",), ""),
    ("true and false are values to images before March 2026", ("environment-booleans",), ""),
    ("An empty value becomes a bare flag", ("environment-empty",), ""),
    ("An empty JSON list drops the argument", ("environment-json",), ""),
    ("A port of one's own is appended after --port 8080", ("environment-port",), ""),
    (
        "The model is SM_VLLM_MODEL, else /opt/ml/model, else HF_MODEL_ID",
        ("hub-model-id", "environment-owned"),
        "",
    ),
    (
        "gpt-oss downloads a vocabulary when the first chat comes",
        ("chat-vocabulary", "chat-vocabulary-file"),
        "`heads stage` adds the file, and the plan sets `TIKTOKEN_ENCODINGS_BASE`.",
    ),
    ("Registry accounts differ by region; the public mirror cannot be deployed", ("image-registry",), ""),
    ("A tag that was never published", ("image-tag", "image-version", "image-exists"), ""),
    ("SGLang and others have no P-EAGLE", ("other-engine",), ""),
    ("Some vLLM versions load a draft head without its norm, in silence", ("head-engine", "head-vllm"), ""),
    ("Some targets cannot hand their hidden states to a draft head", ("draft-target",), ""),
    ("Beyond its own context a head drafts nothing; vLLM below 0.27.0 crashes", ("head-length",), ""),
    ("A tensor parallel size that the attention heads cannot be split into", ("tensor-parallel-heads",), ""),
    (
        "min_p, custom logits processors and watermarks are refused with speculation",
        ("speculation-conflicts", "generation-defaults"),
        "",
    ),
    ("A draft head and pipeline stages", ("pipeline-stages",), ""),
    ("A CUDA graph mode has no effect on a CPU", ("cudagraphs-on-cpu",), ""),
    (
        "Environment: 100 entries, 1,024 bytes each, 32 KB in all; components 16",
        ("environment-limits", "component-environment"),
        "",
    ),
    ("Below 10k tokens of context the other head is preferred", ("head-context",), ""),
    (
        "Hosting has its own list of instance types",
        ("instance-type", "instance-unlisted", "no-gpu", "jumpstart-instance"),
        "",
    ),
    ("Instance pools exist in 16 regions", ("instance-pools-region",), ""),
    (
        "Capacity: training plans end, and are for certain resources",
        ("capacity-reservation", "reservation"),
        "",
    ),
    (
        "Quota `<type> for endpoint usage`: 0 in new accounts, all endpoints count",
        ("quota-instances", "quota-all-instances"),
        "",
    ),
    ("An update builds a second fleet, with its quota and price", ("second-fleet", "quota-instances"), ""),
    ("At zero instances requests fail", ("scale-to-zero",), ""),
    ("EC2's price is not SageMaker's", ("price", "price-listed", "budget"), ""),
    ("A model that fits one GPU wastes seven of eight", ("gpus",), ""),
    ("Weights, head and KV cache must fit", ("memory", "context-length"), ""),
    (
        "A KMS key does not encrypt NVMe disks",
        ("kms-local-storage", "kms-key", "volume-key", "artifacts-kms"),
        "",
    ),
    ("JumpStart's buckets need GetObject and ListBucket of the role", ("role-rights",), ""),
    (
        "SageMaker makes a file of each object, and AWS's image installs requirements.txt",
        ("artifacts-markers", "artifacts-requirements"),
        "",
    ),
    ("CloudFormation uses a stored role, and may pass few", ("stack-role", "role-account"), ""),
    (
        "P-EAGLE needs vLLM 0.16.0; flags need their versions",
        ("flag-versions", "engine-known", "request-metrics"),
        "",
    ),
    ("The V2 model runner has no parallel drafting", ("v2-model-runner",), ""),
    ("KV-cache groups of gpt-oss; acceptance of Gemma under a schema, and beyond 32k", ("known-faults",), ""),
    (
        "num_speculative_tokens_per_batch_size is broken for P-EAGLE",
        ("k-table",),
        "Own images have a plugin that repairs it; the plan turns it on.",
    ),
    ("A table of K costs the full CUDA graphs, and collapsed where K became 0", ("k-table-graphs",), ""),
    ("draft_tensor_parallel_size is 1 or the target's", ("draft-tensor-parallel", "head-whole"), ""),
    ("An argument that the engine does not know", ("extra-arguments", "argument-versions"), ""),
    ("Security advisories: floor 0.33.0", ("advisories",), ""),
    ("/invocations lies outside --api-key", ("api-key",), ""),
    (
        "Acceptance is the only witness of a head that does not work",
        ("metrics-off",),
        "`status` and the stack's alarm watch it.",
    ),
    (
        "A head of another model, or deeper than trained, loads all the same",
        ("head-fits", "trained-depth", "head-whole"),
        "",
    ),
    (
        "A head without d2t, mask token or some layer loads in silence, or ends the engine",
        ("head-whole",),
        "",
    ),
    (
        "A version that AWS calls deprecated or vulnerable; what a model's spec has to say",
        ("jumpstart-deprecated", "jumpstart-message"),
        "",
    ),
    ("Greedy answers differ between batch shapes on GPUs", (), "`verify` measures the noise floor first."),
    (
        "The local CPU engine samples wrongly above temperature 0 without its repair",
        (),
        "The engine's own plugin repairs it.",
    ),
    (
        "Vendors' timeouts: 60 s for an answer, 8 minutes for a stream",
        (),
        "`invoke` and the readers hold to them.",
    ),
    ("Nobody turns a forgotten endpoint off", ("guard-installed", "guard-current"), ""),
    (
        "The schedule that ends the lifetime may not delete",
        ("scheduler-role-trust", "scheduler-role-rights"),
        "",
    ),
    ("A taken name, or an endpoint of somebody else", ("name-taken",), ""),
    (
        "Network isolation, least privilege, no secrets, no open flags",
        ("network-isolation", "role-too-broad", "environment-secrets", "forbidden-flags"),
        "",
    ),
    ("Images by digest; safetensors only", ("image-digest", "artifacts-files"), ""),
    (
        "Weights that are not there, or in another region",
        ("artifacts-readable", "artifacts-region", "missing-fact"),
        "",
    ),
    (
        "Credentials, account, clock, rights of the caller and of the role",
        ("credentials", "account", "clock-skew", "caller-rights", "role-trust", "role-rights"),
        "",
    ),
    ("A VPC whose subnets are gone or full", ("vpc",), ""),
    (
        "This machine: Python, boto3, packages, engine, disk, memory, Node",
        (
            "python-version",
            "boto3-members",
            "local-packages",
            "engine-environment",
            "local-disk",
            "local-memory",
            "platform",
            "cdk",
        ),
        "",
    ),
)

_INTRO = """\
# Checks: what is checked before a deploy

`scripts/reference` writes this page from the registry of checks.
`peagle-sm checks` lists the same; `--format json` has every field. To write a check of your own, see
[Add a preflight check](../explanation/follow.md#add-a-preflight-check).

`plan` runs the checks that need only the spec, without an account. `deploy` runs those and the preflight
before it creates anything. `peagle-sm doctor` runs all checks, those of this machine too, and changes nothing.

- **error**: the deploy would fail, or P-EAGLE would be off and nothing would say so. Nothing is created;
  exit code 3, or 5 without credentials.
- **warning**: it works, but costs or risks something. An advisory has an expiry date.
- **unknown**: the check got no answer in time, or a permission is missing; the report names it. The deploy
  goes on.
- **skipped**: left out with `--skip-check ID`. The report still says what the check looks for.

All look-ups run at the same time, in at most 30 seconds together. They only read. The
local SageMaker has no quotas, prices or registry, so fewer checks apply there.
"""


def checks_page() -> str:
    """The page: a table of all, each in full, and the traps with their checks."""
    parts = [
        _INTRO,
        f"## All {len(ALL_CHECKS)}\n",
        *_table(),
        "\n## Known traps and their checks\n",
        *_traps(),
    ]
    parts += ["\n## Each in full\n", *(_full(each) for each in ALL_CHECKS)]
    return "\n".join(parts).rstrip() + "\n"


def _table() -> list[str]:
    rows = [
        f"| [{each.id}](#{each.id}) | {each.severity} | {_where(each)} | {each.what} |"
        for each in ALL_CHECKS
    ]
    return ["| check | at worst | looks at | what |", "|---|---|---|---|", *rows]


def _where(each: Check) -> str:
    return "spec" if each in SPEC_CHECKS else "this machine" if each.reads == "machine" else "account"


def _traps() -> list[str]:
    rows = []
    for trap, ids, elsewhere in TRAPS:
        told = ", ".join(f"[{each}](#{each})" for each in ids)
        rows.append(f"| {trap} | {'; '.join(filter(None, (told, elsewhere)))} |")
    return ["| trap | looked for by |", "|---|---|", *rows]


def _full(each: Check) -> str:
    source = f"[{each.source}]({each.url})" if each.url else each.source
    lines = [f"### {each.id}", "", each.what, "", f"- why: {each.why}", f"- fix: {each.remedy}"]
    return "\n".join([*lines, f"- source: {source}", ""])
