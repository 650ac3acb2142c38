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
        self.role = self.make_role("logs:*", "sqs:SendMessage", "sns:Publish")

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

    def make_role(self, *actions: str) -> str:
        """Make a role that functions take and that allows some actions; return its ARN."""
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "lambda.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
        iam = self.server.client("iam")
        name = f"functions{next(_numbers)}"
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_role_policy(RoleName=name, PolicyName="may", PolicyDocument=policy)
        return str(role["Role"]["Arn"])


@pytest.fixture(scope="module")
def deployed(server: Server) -> Deployed:
    return Deployed(server)
