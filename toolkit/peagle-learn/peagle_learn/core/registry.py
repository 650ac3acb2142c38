"""A promoted head as a version in SageMaker's Model Registry: the CreateModelPackage request. Pure.

What a person or a pipeline asks of a version is in its customer metadata properties: the head's hash, the
data, the target's revision, the recipe, the job and the measurements.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from peagle_learn.core.proof import Proof, Ratio, SetEvidence
from peagle_sm.core.errors import SpecError

MOST_PROPERTIES = 50
MOST_CHARACTERS = 256  #: of a property's value; a key may have 128
MOST_ENVIRONMENT_ENTRIES = 16
"""Of a container of a model package; a model may have 100.

All of them in https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateModelPackage.html and
API_ModelPackageContainerDefinition.html.
"""
# ArnOrName in SageMaker's model: a group of another account is named by its ARN.
_GROUP = re.compile(
    r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*/)?[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
)
_NOT_ALLOWED = re.compile(r"[^\w .:/=+@-]")
_LONGEST_TOKEN = 36


def check_group(name: str) -> str:
    """Return the name or ARN of a model package group.

    Raises:
        SpecError: SageMaker would not take it.
    """
    if not _GROUP.fullmatch(name):
        raise SpecError(
            f"--model-package-group: found {name!r}; allowed: 1 to 63 letters, digits and inner hyphens, or"
            " the ARN of a group",
            next_step="For example --model-package-group draft-heads. Nothing was changed.",
        )
    return name


def model_package(
    group: str, proof: Proof, container: Mapping[str, Any], training: Mapping[str, Any], promotion: int
) -> dict[str, Any]:
    """Return the CreateModelPackage request of a promoted head.

    Args:
        group: name or ARN of the model package group.
        proof: of the head.
        container: PrimaryContainer of the model that serves the head: image, weights, head, environment.
        training: what the job wrote beside the head; {} if the head came from elsewhere.
        promotion: number of the promotion, so that a repeated request registers nothing twice.
    """
    kept = ("Image", "ModelDataSource", "AdditionalModelDataSources")
    wanted: dict[str, Any] = {name: container[name] for name in kept if name in container}
    environment = container.get("Environment", {})
    whole = len(environment) <= MOST_ENVIRONMENT_ENTRIES
    if whole and environment:
        wanted["Environment"] = dict(environment)
    bound = proof.bound
    token = hashlib.sha256(f"{group}\0{bound.endpoint}\0{bound.head}\0{promotion}".encode()).hexdigest()
    return {
        "ModelPackageGroupName": group,
        "ModelPackageDescription": f"Draft head {bound.head[:16]} for {bound.target}, promoted by peagle-sm",
        "InferenceSpecification": {"Containers": [wanted]},
        "ModelApprovalStatus": "Approved",
        "CustomerMetadataProperties": properties_of(proof, training, whole_environment=whole),
        "ClientToken": token[:_LONGEST_TOKEN],
    }


def properties_of(
    proof: Proof, training: Mapping[str, Any], *, whole_environment: bool = True
) -> dict[str, str]:
    """Return the customer metadata properties, the most important first, within SageMaker's limits."""
    bound = proof.bound
    told: dict[str, Any] = {
        "head": bound.head,
        "head_uri": bound.head_uri,
        "data": bound.data,
        "target": bound.target,
        "target_revision": bound.target_revision,
        "endpoint": bound.endpoint,
        "num_speculative_tokens": bound.num_speculative_tokens,
        "proved_at": proof.made_at,
        "tool_version": proof.tool_version,
        **dict(_measured("held_out", proof.evidence.held_out)),
        **dict(_measured("general", proof.evidence.general)),
        **dict(_measured("long_context", proof.evidence.long_context)),
    }
    if not whole_environment:
        told["environment"] = f"left out: more than {MOST_ENVIRONMENT_ENTRIES} variables"
    told |= dict(_trained(training))
    found = {key: text for key, value in told.items() if value is not None and (text := _text(value))}
    return dict(list(found.items())[:MOST_PROPERTIES])


def _measured(name: str, found: SetEvidence | None) -> Iterator[tuple[str, Any]]:
    if found is None:
        return
    yield f"{name}.prompts", found.prompts
    yield f"{name}.serving_length", _rounded(found.serving_length)
    yield f"{name}.candidate_length", _rounded(found.candidate_length)
    yield f"{name}.acceptance_ratio", _interval(found.acceptance)
    yield f"{name}.speed_ratio", _interval(found.speed)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _interval(ratio: Ratio | None) -> str | None:
    """Format a ratio with its interval; the registry allows no brackets and no commas."""
    return None if ratio is None else f"{ratio.value:.3f} from {ratio.low:.3f} to {ratio.high:.3f}"


def _trained(training: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield job and recipe from ``training.json``; what is not there is left out."""
    job = training.get("job")
    yield "job", job.get("name") if isinstance(job, Mapping) else None
    yield "steps", training.get("steps")
    settings = training.get("settings")
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, list):
            value = " ".join(str(each) for each in value)
        if isinstance(value, str | int | float):
            yield f"recipe.{name}", value


def _text(value: Any) -> str:
    """Format a value with the letters that SageMaker allows, and no more of them."""
    return _NOT_ALLOWED.sub("-", str(value)).strip()[:MOST_CHARACTERS]
