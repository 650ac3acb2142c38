"""A local SageMaker for one measurement: up, endpoints on it, and everything gone afterwards."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from peagle_sm.aws.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.spec import EndpointSpec
from peagle_sm.local import lifecycle
from peagle_sm.measure import leftovers
from peagle_sm.service import Endpoint, delete, deploy
from peagle_sm.service import leftovers as resources_of_ours

Say = Callable[[str], None]
_GONE_S = 15.0  #: how long a process may take to leave after its server said it was down


class LocalStack:
    """Its own local SageMaker on a free port, as a context manager.

    Leaving it by an exception, Ctrl-C included, ends the server and every engine. After
    :meth:`close`, :attr:`left` names what was found to remain; empty is the proof.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._port: int | None = None
        self._session: Session | None = None
        self._seen: set[leftovers.ProcessRecord] = set()
        self._endpoints: dict[str, Endpoint] = {}
        self.left: list[str] = []

    def __enter__(self) -> Self:
        status = lifecycle.up(None, detach=True, progress=self._say)
        self._port = status.port
        try:
            self._session = make_session(local=LocalTarget.from_status(status.to_dict()))
            self._watch()
        except BaseException:
            lifecycle.down(status.port)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._port is not None:
            if error is not None:
                self._say("   cleaning up: ending the local SageMaker and its engines")
            self.close()

    @property
    def session(self) -> Session:
        """The session that reaches this server.

        Raises:
            RuntimeError: the stack was not entered.
        """
        if self._session is None:
            raise RuntimeError("the local SageMaker is not up: use `with LocalStack(...) as stack`")
        return self._session

    def deploy(self, specs: Mapping[str, EndpointSpec], *, at_once: int = 3) -> dict[str, Endpoint]:
        """Deploy every spec, ``at_once`` of them at a time, and return the endpoints by key.

        Raises:
            PeagleError: the first failure; what that deploy made was cleaned up by it.
        """
        pool = ThreadPoolExecutor(max_workers=at_once)
        try:
            running = {key: pool.submit(self._deploy_one, spec) for key, spec in specs.items()}
            made = {key: future.result() for key, future in running.items()}
        finally:
            # On Ctrl-C the threads are not waited for: closing the server ends what they wait for.
            pool.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(PeagleError, OSError):
                self._watch()
        self._endpoints.update({endpoint.name: endpoint for endpoint in made.values()})
        return made

    def _deploy_one(self, spec: EndpointSpec) -> Endpoint:
        began = time.monotonic()
        # A session of its own: boto3 cannot make clients in two threads at once.
        endpoint = deploy(spec, session=make_session(local=self.session.local))
        self._say(f"   {spec.name} is InService after {time.monotonic() - began:.0f} s")
        return endpoint

    def delete(self, names: Sequence[str]) -> None:
        """Delete these endpoints with their configs, models and schedules, proven gone."""
        if names:
            report = delete(list(names), session=self.session)
            self._say(f"   deleted: {', '.join(report.deleted)}")
        for name in names:
            self._endpoints.pop(name, None)

    def delete_all(self) -> list[str]:
        """Delete whatever was deployed; return ``kind/name`` of every resource that is still listed.

        Asked twice: by what this project tagged, and by plain List calls without any filter.
        """
        self.delete(list(self._endpoints))
        listed = leftovers.list_resources(self.session.client)
        return sorted({*resources_of_ours(self.session), *listed})

    def engines(self) -> list[dict[str, Any]]:
        """The server's own account of its engines: endpoint, versions, local overrides, pid."""
        return list(self.session.admin("status").get("engines", []))

    def processes(self) -> list[str]:
        """What runs now: the server, its engines and their descendants."""
        self._watch()
        return [record.command for record in sorted(self._seen, key=lambda record: record.pid)]

    def close(self) -> list[str]:
        """End the server; return (and keep in :attr:`left`) each of its processes that still runs."""
        port, self._port = self._port, None
        if port is None:
            return self.left
        with contextlib.suppress(PeagleError, OSError):
            self._watch()
        lifecycle.down(port)
        give_up = time.monotonic() + _GONE_S
        while (alive := leftovers.survivors(self._seen)) and time.monotonic() < give_up:
            time.sleep(0.2)
        self.left = alive
        return alive

    def _watch(self) -> None:
        """Remember every process of this server, so that each can be looked for afterwards."""
        status = lifecycle.find_server(self._port)
        engines = [row["pid"] for row in self.engines() if row.get("pid")] if self._session else []
        self._seen |= leftovers.processes_of(status.pid, engines)
