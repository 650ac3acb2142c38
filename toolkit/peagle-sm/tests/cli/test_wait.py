"""`wait` against the local server: in service, gone, absent, and what it prints where."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cli.conftest import Run


def test_wait_follows_an_endpoint_up_and_down(peagle: Run, spec: Callable[..., str]) -> None:
    assert peagle("deploy", spec(), "--unguarded", "--yes", "--no-wait").exit_code == 0
    up = peagle("wait", "demo")
    assert (up.exit_code, up.stdout) == (0, "endpoint demo is in service\n"), up.stderr
    assert "endpoint demo is in service" in up.stderr, "progress goes to stderr"
    late = peagle("wait", "demo", "--deleted", "--timeout", "0.1s")
    assert (late.exit_code, late.stdout) == (10, "")
    assert "error: Endpoint demo was not gone after 0.1 s; its status is InService." in late.stderr
    assert peagle("delete", "demo", "--yes").exit_code == 0
    down = peagle("wait", "demo", "--deleted", "--format", "json")
    assert json.loads(down.stdout) == {"name": "demo", "status": "gone"}
    assert peagle("wait", "demo").exit_code == 4
