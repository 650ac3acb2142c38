"""CloudFormation as the front sees it: one request in, one answer out, and an end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from sagemaker_local.cloudformation.api import wire
from sagemaker_local.cloudformation.api.change_sets import ChangeSets
from sagemaker_local.cloudformation.api.describe import Descriptions
from sagemaker_local.cloudformation.api.drafts import Drafts, Sources
from sagemaker_local.cloudformation.api.stacks import Stacks
from sagemaker_local.cloudformation.engine import Engine
from sagemaker_local.cloudformation.errors import Interrupted, TemplateError, invalid
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools, Types
from sagemaker_local.control.errors import ApiError
from sagemaker_local.wire import awsjson, tokens

log = logging.getLogger(__name__)

# How many calls may be worked on at once, and how long the end waits for stacks' operations, in seconds.
_THREADS = 4
_PATIENCE_S = 10.0

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


class CloudFormation:
    """Answers the API's calls and runs the stacks' operations."""

    def __init__(
        self,
        *,
        account: str,
        region: str,
        now: Callable[[], datetime],
        types: Types,
        client: Callable[[str], Any],
        sources: Sources,
    ) -> None:
        self._region = region
        self._ending = threading.Event()
        tools = Tools(
            account=account,
            region=region,
            now=now,
            types=types,
            client=client,
            pause=self._pause,
        )
        store = Store(tools)
        self._engine = Engine(tools, store)
        drafts = Drafts(tools, store, sources)
        stacks = Stacks(tools, store, self._engine, drafts)
        self._answers = _table(stacks, ChangeSets(tools, store, stacks, drafts), Descriptions(store))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cloudformation")

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        caller = awsjson.caller_of(request)
        if caller is None or caller.region != self._region:
            message = "Credential should be scoped to a valid region."
            refused = ApiError("SignatureDoesNotMatch", message, 403)
            return web.Response(status=403, body=wire.refusal(refused), content_type="text/xml")
        form = {**request.query, **dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))}
        status, body = await asyncio.get_running_loop().run_in_executor(self._threads, self.answer, form)
        return web.Response(status=status, body=body, content_type="text/xml")

    def answer(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        """Answer a form; blocks while a template is read, never for a stack's operation."""
        try:
            operation = wire.operation_of(form)
            work = self._answers.get(operation.name)
            if work is None:
                known = ", ".join(sorted(self._answers))
                raise ApiError(
                    "InvalidAction", f"the local CloudFormation has no {operation.name}; it has {known}"
                )
            parameters = wire.parameters_of(operation, form)
            return 200, wire.answer(operation, _paged(operation.name, work, parameters))
        except ApiError as error:
            return error.status, wire.refusal(error)
        except TemplateError as error:
            return 400, wire.refusal(invalid(str(error)))
        except Exception as error:
            log.exception("%s failed", form.get("Action"))
            message = f"{form.get('Action')} failed: {type(error).__name__}: {error}"
            return 500, wire.refusal(ApiError("InternalFailure", message, 500))

    async def close(self) -> None:
        """Stop every operation at once."""
        self._ending.set()
        await asyncio.get_running_loop().run_in_executor(None, self._engine.join, _PATIENCE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pause(self, seconds: float) -> None:
        if self._ending.wait(seconds):
            raise Interrupted


# The lists that come in pages.
_PAGED = {
    "DescribeChangeSet": "Changes",
    "DescribeEvents": "OperationEvents",
    "DescribeStackEvents": "StackEvents",
    "DescribeStacks": "Stacks",
    "ListExports": "Exports",
    "ListImports": "Imports",
    "ListStackResources": "StackResourceSummaries",
    "ListStacks": "StackSummaries",
}


def _paged(operation: str, work: Answer, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the operation's result; a NextToken belongs to one operation and its filters."""
    key = _PAGED.get(operation)
    if key is None:
        return work(request)
    token = request.get("NextToken")
    if token is not None and (token := tokens.unbound(operation, request)) is None:
        raise invalid("NextToken is invalid")
    result = work(request)
    rows, following = wire.page(result[key], token)
    bound = None if following is None else tokens.bound(operation, request, following)
    return {**result, key: rows, "NextToken": bound}


def _table(stacks: Stacks, change_sets: ChangeSets, descriptions: Descriptions) -> dict[str, Answer]:
    return {
        "CreateChangeSet": change_sets.create_change_set,
        "CreateStack": stacks.create_stack,
        "DeleteChangeSet": change_sets.delete_change_set,
        "DeleteStack": stacks.delete_stack,
        "DescribeChangeSet": change_sets.describe_change_set,
        "DescribeEvents": descriptions.describe_events,
        "DescribeStackEvents": descriptions.describe_stack_events,
        "DescribeStackResources": descriptions.describe_stack_resources,
        "DescribeStacks": descriptions.describe_stacks,
        "ExecuteChangeSet": change_sets.execute_change_set,
        "GetTemplate": descriptions.get_template,
        "ListExports": descriptions.list_exports,
        "ListImports": descriptions.list_imports,
        "ListStackResources": descriptions.list_stack_resources,
        "ListStacks": descriptions.list_stacks,
        "UpdateStack": stacks.update_stack,
    }
