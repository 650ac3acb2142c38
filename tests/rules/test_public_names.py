"""What `import peagle_sm` promises. A name that leaves or joins this list is a decision, not an accident."""

from __future__ import annotations

import peagle_sm

PUBLIC = [
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


def test_the_public_names_are_pinned() -> None:
    assert sorted(peagle_sm.__all__) == sorted(PUBLIC)
    assert dir(peagle_sm) == sorted(PUBLIC)


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC:
        assert getattr(peagle_sm, name).__doc__, name


def test_another_name_is_an_attribute_error() -> None:
    assert not hasattr(peagle_sm, "no_such_name")
