"""Checks on what must be known before anything can be sent."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Edits, Fix, Note, check
from peagle_sm.core.guard.names import execution_role, scheduler_role
from peagle_sm.core.plan.memory import memory_fit, unknown_facts
from peagle_sm.core.plan.payloads import partition
from peagle_sm.core.plan.resolve import Draft


def _guards_roles(draft: Draft) -> Edits:
    """The roles that `guard install` makes; they are written where the account is known."""
    account, missing = draft.context.account, {gap.field for gap in draft.gaps}
    if not account.isdigit() or draft.context.local:
        return {}
    names = {
        "execution_role_arn": execution_role(draft.region),
        "scheduler_role_arn": scheduler_role(draft.region),
    }
    prefix = f"arn:{partition(draft.region)}:iam::{account}:role/"
    return {field: prefix + name for field, name in names.items() if field in missing}


@check(
    "missing-fact",
    why="A payload cannot be written without it, and a guess would be billed.",
    source="this project: the catalogue",
    remedy="Give the field named.",
    fix=Fix("name the guard's own roles", edits=_guards_roles),
)
def missing_fact(draft: Draft) -> Iterator[Note]:
    """Facts that neither the spec, nor the catalogue, nor the session gives."""
    for gap in draft.gaps:
        yield Note("error", gap.message, gap.next_step)


def _accept(_: Draft) -> Edits:
    return {"accept_eula": True}


@check(
    "licence",
    why="Without ModelAccessConfig.AcceptEula a gated model fails after the instance was started.",
    source="SageMaker API: ModelAccessConfig; JumpStartConfig.accept_eula defaults to False",
    remedy="Read the model's licence and set accept_eula: true.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ModelAccessConfig.html",
    fix=Fix("accept the model's licence: read it first", edits=_accept),
)
def licence(draft: Draft) -> Iterator[Note]:
    """A JumpStart model whose licence must be accepted, and was not."""
    if draft.spec.accept_eula or draft.source != "jumpstart" or draft.jumpstart is None:
        return
    if draft.jumpstart.gated:
        yield Note("error", f"accept_eula: found false; {draft.spec.model} is gated and needs true")


@check(
    "stand-in-weights",
    why="A figure measured on a few million parameters says nothing of a real model.",
    source="this project: model cards of the shipped weights",
    remedy="Nothing to do; never quote its figures as those of a real model.",
    severity="info",
)
def stand_in_weights(draft: Draft) -> Iterator[Note]:
    """Small stand-in weights instead of a real model."""
    if draft.model.stand_in:
        yield Note("info", f"{draft.spec.model} runs on small stand-in weights")


@check(
    "memory",
    why="An engine that does not fit dies while loading, after minutes of billed time.",
    source="vLLM: weights + draft + KV cache of one full sequence must fit gpu_memory_utilization",
    remedy="Lower serving.max_model_len, raise serving.tensor_parallel_size, or take a larger instance.",
    url="https://docs.vllm.ai/en/latest/configuration/conserving_memory/",
)
def memory(draft: Draft) -> Iterator[Note]:
    """Weights, draft head and KV cache against the accelerators' memory."""
    fit = memory_fit(draft)
    if fit is None:
        missing = ", ".join(unknown_facts(draft))
        yield Note(
            "info",
            f"whether the model fits cannot be said: not known: {missing}",
            "Compare the model's size with the instance's memory yourself.",
        )
    elif not fit.fits:
        need = fit.weights_gb + fit.head_gb + fit.kv_cache_gb + fit.overhead_gb
        yield Note("error", f"the model does not fit: needs {need:.1f} GB of {fit.available_gb:g} GB")


def _own_context(draft: Draft) -> Edits:
    return {"serving.max_model_len": draft.model.max_context} if draft.model.max_context else {}


@check(
    "context-length",
    why="vLLM refuses to start with a max_model_len beyond the model's positions.",
    source="vLLM: max_model_len against max_position_embeddings",
    remedy="Lower serving.max_model_len.",
    url="https://docs.vllm.ai/en/latest/configuration/engine_args/",
    fix=Fix("lower max_model_len to the model's own", edits=_own_context),
)
def context_length(draft: Draft) -> Iterator[Note]:
    """A max_model_len beyond the model's context."""
    longest, asked = draft.model.max_context, draft.max_model_len
    if longest is not None and asked is not None and asked > longest:
        yield Note("error", f"serving.max_model_len: found {asked}; allowed: at most {longest}")


CHECKS: tuple[Check, ...] = (missing_fact, licence, stand_in_weights, memory, context_length)
