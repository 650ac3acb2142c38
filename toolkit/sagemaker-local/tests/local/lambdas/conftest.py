"""Functions deployed at a real local server."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from typing import Any

import pytest

from tests.local.serving import Server

_numbers = itertools.count(1)


def zipped(**files: str) -> bytes:
    """A deployment package; ``a__b`` is the file ``a/b.py``, and ``index`` is ``index.py``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name.replace('__', '/')}.py", text)
    return packed.getvalue()


class Deployed:
    """Deploys functions and calls them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = server.client("lambda")
        self.role = server.role("lambda", "logs:*", "sqs:SendMessage", "sns:Publish")

    def function(self, source: str, *, files: dict[str, str] | None = None, **settings: Any) -> str:
        """Deploy a function whose package has ``index.py``; return its name."""
        name = f"f{next(_numbers)}"
        fixed = {"Role": self.role, "Runtime": "python3.13", "Handler": "index.handler", "Timeout": 30}
        self.client.create_function(
            FunctionName=name,
            Code={"ZipFile": zipped(index=source, **(files or {}))},
            **{**fixed, **settings},
        )
        return name

    def call(self, name: str, event: Any = None, **more: Any) -> tuple[Any, dict[str, Any]]:
        """Invoke a function; return what it gave and the answer's other members."""
        answer = self.client.invoke(FunctionName=name, Payload=json.dumps(event or {}), **more)
        return json.loads(answer["Payload"].read() or b"null"), answer


@pytest.fixture(scope="module")
def deployed(server: Server) -> Deployed:
    return Deployed(server)
