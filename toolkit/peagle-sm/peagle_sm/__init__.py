"""P-EAGLE endpoints on SageMaker: planned, priced, streamed, and deleted on time.

The public names; each is imported when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import LocalTarget
    from peagle_sm.aws.streams.runtime import (
        Acceptance,
        Choice,
        Chunk,
        Completion,
        StreamSummary,
        TokenLogprob,
        TokenStream,
        ToolCall,
        ToolCallPart,
        Usage,
    )
    from peagle_sm.aws.streams.token_stream import AsyncTokenStream
    from peagle_sm.core.errors import (
        BillableLeft,
        CredentialsError,
        EndpointFailed,
        EngineError,
        Interrupted,
        ModelStreamFailed,
        NotFound,
        PeagleError,
        PlanRefused,
        ServiceFault,
        SpecError,
        StreamCut,
        StreamDamaged,
        StreamError,
        StreamReportedError,
        StreamStalled,
        StreamTooLarge,
    )
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec
    from peagle_sm.service.heads import check_head
    from peagle_sm.service.lifecycle.endpoint import Endpoint
    from peagle_sm.service.notebook import connect, deploy, doctor, make_session, plan
    from peagle_sm.service.spec_to_plan import load_spec

    __version__: str

_HOME = {
    "Acceptance": "peagle_sm.aws.streams.runtime",
    "AsyncTokenStream": "peagle_sm.aws.streams.token_stream",
    "BillableLeft": "peagle_sm.core.errors",
    "Choice": "peagle_sm.aws.streams.runtime",
    "Chunk": "peagle_sm.aws.streams.runtime",
    "Completion": "peagle_sm.aws.streams.runtime",
    "CredentialsError": "peagle_sm.core.errors",
    "Endpoint": "peagle_sm.service.lifecycle.endpoint",
    "EndpointFailed": "peagle_sm.core.errors",
    "EndpointSpec": "peagle_sm.core.spec.endpoint_spec",
    "EngineError": "peagle_sm.core.errors",
    "Interrupted": "peagle_sm.core.errors",
    "LocalTarget": "peagle_sm.aws.session.session",
    "ModelStreamFailed": "peagle_sm.core.errors",
    "NotFound": "peagle_sm.core.errors",
    "PeagleError": "peagle_sm.core.errors",
    "PlanRefused": "peagle_sm.core.errors",
    "ServiceFault": "peagle_sm.core.errors",
    "SpecError": "peagle_sm.core.errors",
    "StreamCut": "peagle_sm.core.errors",
    "StreamDamaged": "peagle_sm.core.errors",
    "StreamError": "peagle_sm.core.errors",
    "StreamReportedError": "peagle_sm.core.errors",
    "StreamStalled": "peagle_sm.core.errors",
    "StreamSummary": "peagle_sm.aws.streams.runtime",
    "StreamTooLarge": "peagle_sm.core.errors",
    "TokenLogprob": "peagle_sm.aws.streams.runtime",
    "TokenStream": "peagle_sm.aws.streams.runtime",
    "ToolCall": "peagle_sm.aws.streams.runtime",
    "ToolCallPart": "peagle_sm.aws.streams.runtime",
    "Usage": "peagle_sm.aws.streams.runtime",
    "bench": "peagle_bench.notebook.calls",
    "check_head": "peagle_sm.service.heads",
    "compare": "peagle_bench.notebook.calls",
    "connect": "peagle_sm.service.notebook",
    "deploy": "peagle_sm.service.notebook",
    "doctor": "peagle_sm.service.notebook",
    "load_spec": "peagle_sm.service.spec_to_plan",
    "make_session": "peagle_sm.service.notebook",
    "plan": "peagle_sm.service.notebook",
    "report": "peagle_bench.notebook.results",
    "tune": "peagle_bench.notebook.calls",
    "verify": "peagle_bench.notebook.calls",
}

__all__ = [
    "Acceptance",
    "AsyncTokenStream",
    "BillableLeft",
    "Choice",
    "Chunk",
    "Completion",
    "CredentialsError",
    "Endpoint",
    "EndpointFailed",
    "EndpointSpec",
    "EngineError",
    "Interrupted",
    "LocalTarget",
    "ModelStreamFailed",
    "NotFound",
    "PeagleError",
    "PlanRefused",
    "ServiceFault",
    "SpecError",
    "StreamCut",
    "StreamDamaged",
    "StreamError",
    "StreamReportedError",
    "StreamStalled",
    "StreamSummary",
    "StreamTooLarge",
    "TokenLogprob",
    "TokenStream",
    "ToolCall",
    "ToolCallPart",
    "Usage",
    "__version__",
    "bench",
    "check_head",
    "compare",
    "connect",
    "deploy",
    "doctor",
    "load_spec",
    "make_session",
    "plan",
    "report",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("peagle-sm")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "peagle_bench":
            raise
        from peagle_sm.core.words import clone_command

        raise AttributeError(
            f"peagle_sm.{name} needs the package peagle-bench. {clone_command('peagle-bench')}"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
