"""`Endpoint.record`: the requests of one `Endpoint` object, recorded while a `with` block runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from peagle_sm.core.display import Card, Shown
from peagle_sm.core.errors import PeagleError, SpecError

# What records is imported when something is recorded: most programs record nothing.
if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.streams.answers import Completion
    from peagle_sm.traffic.plan import RecordingPlan
    from peagle_sm.traffic.recorder import Recorder, Recording, Summary, TrafficSource


class Recordable(Protocol):
    """What is recorded: an `Endpoint`."""

    name: str
    session: Session
    recorder: Recorder | None


class EndpointRecording(Shown):
    """A recording of one `Endpoint` object; entering it starts, leaving it writes the rest.

    Attributes:
        plan: what is recorded, and where; a notebook shows it.
        problems: messages about records that were lost.
    """

    def __init__(self, endpoint: Recordable, plan: RecordingPlan) -> None:
        """Use `Endpoint.record`."""
        from peagle_sm.traffic.plan import with_endpoint_key
        from peagle_sm.traffic.recorder import Summary

        self.plan = with_endpoint_key(plan, endpoint.session, endpoint.name)
        self.problems: list[str] = []
        self._endpoint = endpoint
        self._summary = Summary()

    def __enter__(self) -> EndpointRecording:
        """Open the target and start.

        Raises:
            SpecError: the target cannot be used, or the object is being recorded already.
            NotFound, CredentialsError, ServiceFault: as `peagle_sm.traffic.plan.start`.
        """
        from peagle_sm.traffic.plan import start

        endpoint = self._endpoint
        if endpoint.recorder is not None:
            raise SpecError(
                f"{endpoint.name!r} is being recorded already by this object",
                next_step="Leave the first block, or use a second object of the endpoint.",
            )
        source = source_of(endpoint.session, endpoint.name)
        endpoint.recorder = start(self.plan, endpoint.session, source, on_problem=self.problems.append)
        self._summary = endpoint.recorder.summary
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and write what waits."""
        recorder, self._endpoint.recorder = self._endpoint.recorder, None
        if recorder is not None:
            recorder.close()

    @property
    def summary(self) -> Summary:
        """Requests recorded and lost so far; final after the block."""
        return self._summary

    def card(self) -> Card:
        """Return what a notebook shows."""
        return Card(f"Recording of {self._endpoint.name}", fields=tuple(self.plan.rows()))


def source_of(session: Session, name: str) -> TrafficSource:
    """Describe an endpoint for its records; without permission only its name is known."""
    from peagle_sm.service.inventory.inspection import status
    from peagle_sm.traffic.recorder import TrafficSource, mode_of

    try:
        facts = status(name, session=session)
    except PeagleError:
        return TrafficSource(name)
    return TrafficSource(name, None, facts.model_name, mode_of(facts.summary.mode))


@contextmanager
def recorded(recorder: Recorder | None, body: bytes, *, streamed: bool) -> Iterator[Recording | None]:
    """Record a request that is sent in the block; a stream is recorded on, a whole answer ends here."""
    recording = None if recorder is None else recorder.begin(body, streamed=streamed, framed=streamed)
    try:
        yield recording
    except BaseException as error:
        if recording is not None:
            status = error.details.get("original_status_code") if isinstance(error, PeagleError) else None
            left = not isinstance(error, Exception)  # Ctrl-C, or a cancelled task
            recording.end(left=left, problem=None if left else str(error), status=status)
        raise
    if recording is not None and not streamed:
        recording.end()


def add_whole(recording: Recording | None, completion: Completion) -> None:
    """Add a whole answer to its recording."""
    if recording is not None:
        recording.add(json.dumps(completion.raw).encode())
