"""moto in this process: S3, STS, IAM, Scheduler, CloudWatch, Logs, and whatever else is not SageMaker.

Requests go to moto's own WSGI applications in a thread; our side writes to its stores directly,
so that rules for outsiders (no metrics under ``AWS/``) do not bind the services themselves.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import web

from sagemaker_local.clock import LocalClock
from sagemaker_local.cloudwatch import CloudWatch
from sagemaker_local.cloudwatch.embedded import embedded_metrics
from sagemaker_local.other_services.rules import lay_rules
from sagemaker_local.other_services.simulation import allows
from sagemaker_local.wire import unserved

log = logging.getLogger(__name__)

# How many requests moto may work on at once.
_THREADS = 8
# A PutMetricData or S3 upload beyond this is refused; S3's own limit for one PUT is 5 GB.
LARGEST_BODY = 1024 * 1024 * 1024

T = TypeVar("T")

SERVICE = "service"
"""For `Moto.put_log_events`: an AWS service writes by its own rights, not by a role of the account."""
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "server", "date"}


class Moto:
    """moto's applications and stores for one account and region."""

    def __init__(self, account: str, region: str, clock: LocalClock) -> None:
        """Set account and region of our own writes, and the clock; moto is not imported yet."""
        self.account = account
        self.region = region
        self.cloudwatch = CloudWatch(clock.now)
        self._clock = clock
        self._app: Any = None
        self._lock = Lock()
        self._iam = Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="moto")

    def load(self) -> None:
        """Import moto, empty it, and add our rules. Call it once, from any thread.

        moto's stores are global to the process: one server at a time in each.
        """
        from moto.moto_api._internal import moto_api_backend
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication

        moto_api_backend.reset()
        self.cloudwatch.lay()
        lay_rules()
        self._set_the_clock_of_logs()
        with self._lock:
            self._app = DomainDispatcherApplication(_app_of)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request with moto; what it lacks is refused as AWS refuses an unknown operation."""
        body = await request.read()
        environ = _environ(request, body)
        loop = asyncio.get_running_loop()
        try:
            status, headers, payload = await loop.run_in_executor(self._threads, self._call, environ)
        except Exception as error:
            if unserved.is_lacking(error):
                return unserved.not_implemented(request, body, str(error))
            log.exception("moto failed: %s %s", request.method, request.path)
            return unserved.broken(request, body, error)
        kind = next((value for name, value in headers if name.lower() == "content-type"), "")
        if unserved.is_unserved(request, status, kind, payload):
            return unserved.not_implemented(request, body)
        response = web.Response(status=status, body=payload)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP and name.lower() != "content-length":
                response.headers.add(name, value)
        if request.method == "HEAD":
            length = dict((name.lower(), value) for name, value in headers).get("content-length")
            if length is not None:
                response.headers["Content-Length"] = length
        return response

    async def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run work on moto's stores in one of its threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def put_metrics(self, namespace: str, data: list[dict[str, Any]]) -> None:
        """Write data points as the services themselves do."""
        self.cloudwatch.series.put(namespace, data)

    def evaluate_alarms(self) -> None:
        """Evaluate the alarms and publish their changes; blocks, so call it in a thread."""

        def notify(topic: str, subject: str, message: str) -> None:
            self.backend("sns").publish(message, arn=topic, subject=subject)

        for name in self.cloudwatch.evaluate_alarms(self.backend("cloudwatch"), notify):
            log.info("alarm %s changed state", name)

    def is_scalable(self, resource_id: str) -> bool:
        """Return whether a resource is registered with Application Auto Scaling."""
        targets = self.backend("applicationautoscaling").targets
        return any(resource_id in of_dimension for of_dimension in targets.values())

    def tripped_alarm(self, names: Sequence[str]) -> str | None:
        """Return the first of these alarms that is in state ALARM; one that does not exist is not."""
        self.evaluate_alarms()
        alarms = self.backend("cloudwatch").alarms
        return next((name for name in names if name in alarms and alarms[name].state_value == "ALARM"), None)

    def put_log_events(
        self, group: str, stream: str, events: list[tuple[int, str]], role: str | None
    ) -> None:
        """Write log events by a role; a group that does not exist is created only if the role may do so.

        Without the group the events are lost, as in AWS. ``role`` is an ARN, `SERVICE`, or None for a writer
        that is gone and creates nothing, so that a deleted group stays deleted.
        """
        from moto.logs.exceptions import ResourceNotFoundException

        logs = self.backend("logs")
        if group not in logs.groups:
            arn = f"arn:aws:logs:{self.region}:{self.account}:log-group:{group}"
            if role is None or not self._allows(role, "logs:CreateLogGroup", arn):
                return
            logs.ensure_log_group(group)
        try:
            logs.ensure_log_stream(group, stream)
            kept = logs.groups[group].streams[stream]
        except (ResourceNotFoundException, KeyError):  # deleted by another thread in the meantime
            return
        kept.put_log_events([{"timestamp": at, "message": message} for at, message in events])
        for _, message in events:
            for namespace, data in embedded_metrics(message, self._clock):
                self.put_metrics(namespace, data)

    def _set_the_clock_of_logs(self) -> None:
        """Have PutLogEvents refuse what is too old or too new by the local clock, which may be ahead."""
        from moto.logs import models

        models.utcnow = lambda: self._clock.now().astimezone(UTC).replace(tzinfo=None)

    def _allows(self, role: str, action: str, resource: str) -> bool:
        return role == SERVICE or allows(self.backend("iam"), role, action, resource)

    def backend(self, service: str) -> Any:
        """Return moto's store of a service; S3 and IAM are global."""
        from moto.backends import get_backend

        place = "aws" if service in ("s3", "iam") else self.region
        return get_backend(service)[self.account][place]

    def _call(self, environ: dict[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
        status = 500
        sent: list[tuple[str, str]] = []

        def start_response(line: str, headers: list[tuple[str, str]], _: object = None) -> None:
            nonlocal status
            status = int(line.split(" ", 1)[0])
            sent.extend(headers)

        # moto's IAM walks through all roles, and fails where another thread creates one meanwhile.
        of_iam = "/iam/aws4_request" in environ.get("HTTP_AUTHORIZATION", "")
        with self._iam if of_iam else nullcontext():
            parts: Iterable[bytes] = self._app(environ, start_response)
        try:
            return status, sent, b"".join(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()


def _app_of(service: Any) -> Any:
    """Create moto's application of a service; None if moto lacks the service."""
    from moto.moto_server.werkzeug_app import create_backend_app

    if service is None:
        raise unserved.Unserved
    return create_backend_app(service)


def _environ(request: web.Request, body: bytes) -> dict[str, Any]:
    """Describe a request as WSGI does, with the original spelling of S3's metadata headers."""
    from moto.core.request import (
        PRESERVED_HEADER_NAMES_ENVIRON_KEY,
        environ_key_for_header,
        should_preserve_original_header_name,
    )

    raw_path, _, query = request.raw_path.partition("?")
    host, _, port = request.host.partition(":")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(raw_path).encode().decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": request.raw_path,
        "REQUEST_URI": request.raw_path,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.remote or "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    names: dict[str, str] = {}
    for name, value in request.headers.items():
        if "_" in name and not should_preserve_original_header_name(name):
            continue
        if name.lower() in ("transfer-encoding", "content-length"):
            continue
        key = environ_key_for_header(name)
        if should_preserve_original_header_name(name):
            names[key] = name
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    environ["CONTENT_LENGTH"] = str(len(body))
    # moto reads a bucket from the path only under this name, and clients say 127.0.0.1 as well.
    environ["HTTP_HOST"] = f"localhost:{port}" if host == "127.0.0.1" else request.host
    environ[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = names
    return environ
