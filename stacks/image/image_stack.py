"""PeagleImage: a repository and a build project; but for its key nothing bills until a build runs."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, CfnParameter, DefaultStackSynthesizer, Fn, Stack, Tags

from stacks.image import building, storing
from stacks.image.reasons import acknowledge

STACK = "PeagleImage"
REPOSITORY = "peagle-sm/vllm"
#: With a tag or a digest; the build looks the digest up and records it, and refuses `latest`.
BASE_PATTERN = r"^[a-z0-9][\w.:/-]*(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$"
DESCRIPTION = "peagle-sm: builds the serving image and keeps it (one per region)"


class ImageStack(Stack):
    """The repository, the place of the build's records, their key, and the build project."""

    def __init__(self, scope: Any, construct_id: str = STACK, **more: Any) -> None:
        """Compose the stack; ``more`` goes to `aws_cdk.Stack`."""
        options: dict[str, Any] = {
            "analytics_reporting": False,
            "description": DESCRIPTION,
            "synthesizer": DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        }
        super().__init__(scope, construct_id, **{**options, **more})
        base = CfnParameter(
            self,
            "BaseImage",
            allowed_pattern=BASE_PATTERN,
            constraint_description="REPOSITORY:TAG or REPOSITORY@sha256:DIGEST of a public image with vLLM",
            description="The image to build on, by tag or digest; the build records the digest.",
        )
        key = storing.key(self)
        repository = storing.repository(self, REPOSITORY, key)
        records = storing.records(self, key)
        building.project(self, repository, records, key, base)
        self._outputs(repository, records)
        Tags.of(self).add("peagle-sm:part", "image")
        acknowledge(self)

    def _outputs(self, repository: Any, records: Any) -> None:
        start = f"aws codebuild start-build --project-name {building.PROJECT} --region ${{AWS::Region}}"
        told = {
            "RepositoryUri": (repository.attr_repository_uri, "Where the images are."),
            "RecordsBucket": (records.ref, "The bucket with image.json and sbom.json of each build."),
            "BuildCommand": (Fn.sub(start), "Starts a build; its cost: docs/explanation/container.md."),
        }
        for name, (value, description) in told.items():
            CfnOutput(self, name, value=value, description=description)
