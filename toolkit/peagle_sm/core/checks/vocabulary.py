"""Checks on the vocabulary file that gpt-oss needs to chat where the container has no network."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check, preflight_check
from peagle_sm.core.checks.preflight_facts import Artifacts
from peagle_sm.core.plan.environment import MODEL_MOUNT, VOCABULARY_FOLDER, environment
from peagle_sm.core.plan.resolve import Draft

_WHY = (
    "openai-harmony downloads the vocabulary when the first chat comes. Without network that fails: the "
    "endpoint is InService and cannot chat."
)
_SOURCE = "vLLM issues 22525 and 54615; openai/harmony issues 95 and 101"
_URL = "https://github.com/vllm-project/vllm/issues/22525"
_REMEDY = (
    "Stage the model with `peagle-sm heads stage MODEL --to PREFIX`, which adds the file; or take an image "
    "with vLLM 0.31 or later, which embeds it; or set security.network_isolation: false."
)


@check("chat-vocabulary", why=_WHY, source=_SOURCE, remedy=_REMEDY, severity="warning", url=_URL)
def chat_vocabulary(draft: Draft) -> Iterator[Note]:
    """A model that chats only with a vocabulary file beside its weights."""
    file, image = draft.possible_vocabulary, draft.image
    if file is None or image is None:
        return
    if image.version is not None:
        yield Note(
            "info",
            f"model_uri: vLLM {image.version_text} needs {file.name} beside the weights to chat "
            f"under network isolation ({file.url})",
        )
    elif VOCABULARY_FOLDER not in draft.spec.serving.env:
        # Not set for the user: an engine that embeds the file cannot chat when the folder lacks it.
        yield Note(
            "warning",
            f"image: the vLLM version of {image.uri} is unknown; below {_embedded(draft)} {draft.spec.model} "
            f"needs {file.name} beside the weights to chat under network isolation",
            "Stage the model with `peagle-sm heads stage MODEL --to PREFIX`, and set "
            f"serving.env.{VOCABULARY_FOLDER}: {MODEL_MOUNT}. An image of your own with vLLM "
            f"{_embedded(draft)} or later needs neither: start its tag with the version, as in vllm:0.33.0.",
        )


def _embedded(draft: Draft) -> str:
    return draft.catalog.images.vocabulary_embedded.version


@preflight_check(
    "chat-vocabulary-file", reads="artifacts", why=_WHY, source=_SOURCE, remedy=_REMEDY, url=_URL
)
def chat_vocabulary_file(fact: Artifacts, draft: Draft | None) -> Iterator[Note]:
    """A prefix without the vocabulary file that the isolated container needs."""
    needed = draft.possible_vocabulary if draft is not None else None
    if draft is None or needed is None or fact.target is None or fact.target.problem is not None:
        return
    if environment(draft).get(VOCABULARY_FOLDER) != MODEL_MOUNT or fact.target.more:
        return
    if needed.name in fact.target.keys:
        return
    prefix, model = fact.target.uri, draft.spec.model
    yield Note(
        "error",
        f"model_uri: there is no {needed.name} in {prefix}: {model} would serve and could not chat",
        f"Add the file: `curl -fsSO {needed.url}`, then `aws s3 cp {needed.name} {prefix}`. Or take an image "
        "with vLLM 0.31 or later, or set security.network_isolation: false.",
    )


CHECKS: tuple[Check, ...] = (chat_vocabulary, chat_vocabulary_file)
