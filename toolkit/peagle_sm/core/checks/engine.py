"""Checks on the serving image: its engine's version, and how it treats its environment."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Edits, Fix, Note, check
from peagle_sm.core.plan.environment import AUTO_RECOVERY, REQUEST_METRICS, environment, speculative_config
from peagle_sm.core.plan.resolve import Draft


@check(
    "image-version",
    why="Which flags the engine knows, and which host it needs, depends on its version.",
    source="tags of AWS's vLLM images",
    remedy="Use a tag that begins with the vLLM version, such as vllm:0.30.0-gpu-….",
    severity="warning",
    url="https://github.com/aws/deep-learning-containers/releases",
)
def image_version(draft: Draft) -> Iterator[Note]:
    """An image whose tag does not tell its vLLM version."""
    if draft.image is not None and draft.image.version is None and not draft.image.is_lmi:
        yield Note(
            "warning", f"the vLLM version of {draft.image.uri} is not known: its flags are not checked"
        )


@check(
    "flag-versions",
    why="An engine that does not know a flag refuses to start.",
    source="vLLM release notes; see data/images.yaml for each flag",
    remedy="Take a newer image, or remove the variable from serving.env.",
    url="https://github.com/vllm-project/vllm/releases",
)
def flag_versions(draft: Draft) -> Iterator[Note]:
    """Variables that need a newer vLLM than the image has."""
    if draft.image is None or draft.image.version is None:
        return
    found = draft.image.version_text
    for name in environment(draft):
        floor = draft.catalog.images.flags.get(name)
        if floor is not None and not draft.image.at_least(floor.version):
            yield Note(
                "error", f"{name} needs vLLM {floor.version} or newer ({floor.source}); the image has {found}"
            )
    config, parallel = speculative_config(draft), draft.catalog.images.parallel_drafting
    if config is not None and config.parallel_drafting and not draft.image.at_least(parallel.version):
        yield Note("error", f"P-EAGLE needs vLLM {parallel.version} or newer; the image has {found}")


@check(
    "request-metrics",
    why="The engine refuses to start with this flag when speculation is off.",
    source="vLLM 0.32.0: --per-request-spec-decode-metrics",
    remedy=f"Remove {REQUEST_METRICS} from serving.env.",
    url="https://github.com/vllm-project/vllm/releases",
)
def request_metrics(draft: Draft) -> Iterator[Note]:
    """Per-request draft metrics without speculation."""
    if not draft.speculating and REQUEST_METRICS in draft.spec.serving.env:
        yield Note(
            "error", f"serving.env.{REQUEST_METRICS}: found with mode none; allowed only with speculation on"
        )


def _verbatim(draft: Draft) -> Edits:
    """Without the supervisor the command line is passed on as it is; nothing to write where it is off."""
    off = environment(draft).get(AUTO_RECOVERY) == "false"
    return {} if off else {f"serving.env.{AUTO_RECOVERY}": "false"}


@check(
    "json-quotes",
    why='The supervisor joins the command line without quoting: {"method":…} arrives as {method:…}.',
    source="model-hosting-container-standards <= 0.1.15 (vLLM images 0.20.2 to 0.23.0, server v2.0)",
    remedy="Take image 0.24.0 or newer, or keep PROCESS_AUTO_RECOVERY=false.",
    url="https://github.com/aws/model-hosting-container-standards",
    fix=Fix(f"set {AUTO_RECOVERY}=false", edits=_verbatim),
)
def json_quotes(draft: Draft) -> Iterator[Note]:
    """An image that strips the quotes of JSON values."""
    if draft.image is None or not draft.catalog.images.loses_quotes(draft.image):
        return
    if environment(draft).get(AUTO_RECOVERY) == "false":
        yield Note(
            "warning",
            f"image {draft.image.uri.rpartition('/')[2]} is suspected of stripping quotes from JSON; "
            f"{AUTO_RECOVERY}=false is set, so a crashed engine is not restarted inside the container",
        )
    else:
        yield Note(
            "error", f"{AUTO_RECOVERY} must be false on this image, or the speculative config arrives broken"
        )


@check(
    "supervisor-characters",
    why="A % in a value raises in the supervisor, and everything after ' ;' is cut.",
    source="model-hosting-container-standards 0.1.16",
    remedy="Write the value without % and ' ;', or set serving.env.PROCESS_AUTO_RECOVERY: 'false'.",
    severity="warning",
    url="https://github.com/aws/model-hosting-container-standards",
    fix=Fix(f"set {AUTO_RECOVERY}=false", edits=_verbatim),
)
def supervisor_characters(draft: Draft) -> Iterator[Note]:
    """Values that the supervisor of newer images breaks."""
    values = environment(draft)
    if values.get(AUTO_RECOVERY) == "false":
        return
    for name, value in values.items():
        if name.startswith("SM_VLLM_") and ("%" in value or " ;" in value):
            yield Note("warning", f"{name} contains % or ' ;', which the image's supervisor breaks")


@check(
    "draft-dropped",
    why="The endpoint works without speculation, and no error is reported.",
    source="djl-serving reads OPTION_*, not SM_VLLM_*; JumpStart's spec of gpt-oss-20b on ml.g5",
    remedy="Take an instance family for which JumpStart has the vLLM image (ml.g7e, ml.g6, ml.p5…).",
    url="https://github.com/deepjavalibrary/djl-serving",
)
def draft_dropped(draft: Draft) -> Iterator[Note]:
    """An LMI image, which ignores the draft settings."""
    if draft.image is not None and draft.image.is_lmi and draft.speculating:
        yield Note(
            "error",
            f"{draft.instance_types[0]} resolves to an LMI image, which ignores SM_VLLM_SPECULATIVE_CONFIG: "
            f"{draft.mode} would be silently off",
        )


CHECKS: tuple[Check, ...] = (
    image_version,
    flag_versions,
    request_metrics,
    json_quotes,
    supervisor_characters,
    draft_dropped,
)
