"""Local SageMaker for one measurement: start it, deploy endpoints, and delete everything."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from peagle_sm.aws.session import local_server
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import EndpointFailed, PeagleError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint, delete, deploy
from peagle_sm.service import leftovers as resources_of_ours
from peagle_sm.service.progress import Event, Lines
from scripts.bench import remaining

Say = Callable[[str], None]
_TELL_EVERY_S, _POLL_S, _LOG_LINES = 10.0, 0.5, 20
_START_S = "15 to 20"
_GONE_S = 15.0  #: how long a process may take to leave after its server said it was down


class LocalStack:
    """Context manager of a local SageMaker on a free port.

    An exception, also Ctrl-C, ends the server and every engine. After :meth:`close`, :attr:`left` lists
    remaining processes; it should be empty.
    """

    def __init__(self, say: Say, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._monotonic = monotonic
        self._port: int | None = None
        self._session: Session | None = None
        self._seen: set[remaining.ProcessRecord] = set()
        self._endpoints: list[str] = []
        self.left: list[str] = []

    def __enter__(self) -> Self:
        status = local_server.up(None, detach=True, progress=self._say)
        self._port = status.port
        try:
            self._session = make_session(local=LocalTarget.from_status(status.to_dict()))
            self._watch()
        except BaseException:
            local_server.down(status.port)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._port is not None:
            if error is not None:
                self._say("   cleaning up: ending the local SageMaker and its engines")
            with _undisturbed():
                left = self.close()
            self._say(f"   left behind: {', '.join(left) or 'nothing'}")

    @property
    def session(self) -> Session:
        """The session that reaches this server.

        Raises:
            RuntimeError: the stack was not entered.
        """
        if self._session is None:
            raise RuntimeError("the local SageMaker is not up: use `with LocalStack(...) as stack`")
        return self._session

    @property
    def port(self) -> int:
        """The port of this server.

        Raises:
            RuntimeError: the stack was not entered.
        """
        if self._port is None:
            raise RuntimeError("the local SageMaker is not up: use `with LocalStack(...) as stack`")
        return self._port

    def deploy(self, specs: Mapping[str, EndpointSpec], *, together: bool = True) -> dict[str, Endpoint]:
        """Deploy every spec and return the endpoints, in service and verified, by key.

        Without a guard: they live for minutes, on a server that ends with this process, and their
        lifetime limit is armed all the same. ``together`` starts all engines before the first is waited
        for. The waiting is done here, not by the deploy: after Ctrl-C that would wait until AWS allows a
        deletion, while a server of our own can simply be ended.

        Raises:
            EndpointFailed: an engine did not come up; ``details`` has failure_reason and log_tail.
            PeagleError: whatever else the deploy says.
        """
        endpoints: dict[str, Endpoint] = {}
        lines = Lines(self._say)

        def downloads(event: Event) -> None:
            if event.phase == "files":
                lines(event)

        try:
            for key, spec in specs.items():
                endpoints[key] = deploy(
                    spec, session=self.session, wait=False, unguarded=True, progress=downloads
                )
                self._endpoints.append(spec.name)
                if not together:
                    self._follow(endpoints[key])
            for endpoint in endpoints.values():
                self._follow(endpoint)
            # Once more, which now only checks that each runs what its spec asks for.
            return {key: deploy(spec, session=self.session, unguarded=True) for key, spec in specs.items()}
        finally:
            with contextlib.suppress(PeagleError, OSError):
                self._watch()

    def _follow(self, endpoint: Endpoint) -> None:
        began = reported = self._monotonic()
        while (status := endpoint.status()).summary.status == "Creating":
            if self._monotonic() - reported > _TELL_EVERY_S:
                reported = self._monotonic()
                waited = f"Creating, {reported - began:.0f} s"
                self._say(f"   {endpoint.name}: {waited}; vLLM starts, {_START_S} s on quiet cores")
            time.sleep(_POLL_S)
        if status.summary.status != "InService":
            lines = [line.message for line in endpoint.logs(limit=_LOG_LINES)]
            raise EndpointFailed(
                f"endpoint {endpoint.name} is {status.summary.status}: {status.failure_reason}",
                next_step="read the engine's last lines above",
                details={"failure_reason": status.failure_reason, "log_tail": lines},
            )
        self._say(f"   {endpoint.name}: InService")

    def delete(self, names: Sequence[str]) -> None:
        """Delete these endpoints with their configs, models and schedules, and confirm it."""
        if names:
            report = delete(list(names), session=self.session)
            self._say(f"   deleted: {', '.join(report.deleted)}")
        self._endpoints = [name for name in self._endpoints if name not in names]

    def delete_all(self) -> list[str]:
        """Delete whatever was deployed; return ``kind/name`` of every resource that is still listed.

        Checked twice: by peagle-sm's tags, and by List calls without a filter.
        """
        self.delete(self._endpoints)
        listed = remaining.list_resources(self.session.client)
        return sorted({*resources_of_ours(self.session), *listed})

    def engines(self) -> list[dict[str, Any]]:
        """Return the server's description of its engines: endpoint, versions, local overrides, pid."""
        return list(self.session.admin("status").get("engines", []))

    def processes(self) -> list[str]:
        """Return the running processes: the server, its engines and their descendants."""
        self._watch()
        return [record.command for record in sorted(self._seen, key=lambda record: record.pid)]

    def close(self) -> list[str]:
        """End the server; return (and keep in :attr:`left`) its processes that still run."""
        if self._port is None:
            return self.left
        with contextlib.suppress(PeagleError, OSError):
            self._watch()
        port, self._port = self._port, None
        local_server.down(port)
        give_up = self._monotonic() + _GONE_S
        while (alive := remaining.survivors(self._seen)) and self._monotonic() < give_up:
            time.sleep(0.2)
        self.left = alive
        return alive

    def _watch(self) -> None:
        """Record every process of this server, so that each can be checked afterwards."""
        status = local_server.find_server(self._port)
        engines = [row["pid"] for row in self.engines() if row.get("pid")] if self._session else []
        self._seen |= remaining.processes_of(status.pid, engines)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore a second Ctrl-C during the clean-up, which takes seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
