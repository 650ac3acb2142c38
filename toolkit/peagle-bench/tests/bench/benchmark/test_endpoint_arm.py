"""The URL of a bare vLLM becomes an arm; what is not one is told."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.endpoint_arm import (
    choose_component,
    demand_mode,
    describe_url,
    is_url,
    look_at,
    size_of,
)
from peagle_bench.compare.arms import parse_arms
from peagle_bench.compare.deployments import existing_rounds
from peagle_bench.results.records import ArmRecord
from peagle_sm.aws.session.session import Api
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from sagemaker_local.paths import weights_dir
from tests.bench.benchmark.making import described


@contextmanager
def serving(pages: dict[str, Any]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(pages.get(self.path)).encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def models(**more: Any) -> dict[str, Any]:
    return {"/v1/models": {"data": [{"id": "m", "max_model_len": 4096, **more}]}, "/health": {}}


def test_a_bare_vllm_is_described_by_what_it_serves() -> None:
    with serving(models(root="/nowhere")) as url:
        result = describe_url(f"{url}/", usd_per_hour=2.5)
        assert look_at(None, result.arm) == "its server still answers at /health"
    assert result.arm == ArmRecord(
        url.removeprefix("http://"), "unknown", None, url, transport="http", usd_per_hour=2.5,
        price_source="given by the user",
    )  # fmt: skip
    assert (result.context, result.target.stand_in) == (4096, False)
    assert result.origin == {"model": "m", "max_model_len": 4096}
    assert (look_at(None, result.arm) or "").startswith(f"no server answers at {url}/health")
    assert result.priced(3.0).arm.usd_per_hour == 3.0


def test_the_shipped_weights_are_known_wherever_they_lie(tmp_path: Path) -> None:
    with serving(models(root=str(weights_dir() / "target"))) as url:
        assert describe_url(url).target.stand_in
    other = tmp_path / "model.safetensors"
    other.write_bytes(bytes((weights_dir() / "target" / "model.safetensors").stat().st_size))
    with serving(models(root=str(tmp_path))) as url:
        assert not describe_url(url).target.stand_in


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://h:1/?a=b"])
def test_what_is_no_address_is_told(url: str) -> None:
    assert is_url(url)
    with pytest.raises(SpecError, match="not a server URL"):
        describe_url(url)


def test_a_server_of_something_else_is_told() -> None:
    with (
        serving({"/v1/models": {"models": []}}) as url,
        pytest.raises(ServiceFault, match="like the OpenAI API"),
    ):
        describe_url(url)
    with pytest.raises(ServiceFault, match="no server answers"):
        describe_url(url)


class Components:
    """A session whose endpoint has these components, of so many GPUs each."""

    def __init__(self, **gpus: float | None) -> None:
        self.gpus = gpus

    def api(self, service: str) -> Api:
        return Api(self, None)

    def get_paginator(self, operation: str) -> Components:
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        return [{"InferenceComponents": [{"InferenceComponentName": name} for name in self.gpus]}]

    def describe_inference_component(self, InferenceComponentName: str) -> dict[str, Any]:
        count = self.gpus[InferenceComponentName]
        needs = {} if count is None else {"NumberOfAcceleratorDevicesRequired": count}
        runtime = {} if count is None else {"CurrentCopyCount": 3, "DesiredCopyCount": 4}
        return {"Specification": {"ComputeResourceRequirements": needs}, "RuntimeConfig": runtime}


def component(place: Any, asked: str | None = None) -> str | None:
    return choose_component(place, "demo", asked)


def test_the_component_is_the_one_asked_for_or_the_one_that_is_clear() -> None:
    assert component(Components()) is None
    assert component(Components(other=1)) == "other"
    assert component(Components(a=1, demo=1)) == "demo"
    assert component(Components(a=1, b=1), "b") == "b"
    with pytest.raises(SpecError, match="runs several inference components: a, b"):
        component(Components(a=1, b=1))
    with pytest.raises(NotFound, match="no inference component 'c'; it has: a"):
        component(Components(a=1), "c")
    with pytest.raises(NotFound, match="it has: none"):
        component(Components(), "c")


def test_a_component_s_gpus_and_copies_are_told_where_they_are_known() -> None:
    place: Any = Components(a=2.0, b=None)
    assert (size_of(place, "a"), size_of(place, "b")) == ((2, 3), (None, None))


def test_two_paths_of_one_server_need_names_of_their_own() -> None:
    """Both would be called after the host, and the requests of one would count for the other."""
    pages = {f"/{path}{page}": each for path in ("plain", "fast") for page, each in models().items()}
    with serving(pages) as url:
        arms = parse_arms([f"{url}/plain", f"{url}/fast"])
        with pytest.raises(SpecError, match=r"two arms have the name 127\.0\.0\.1"):
            existing_rounds(arms, lambda: pytest.fail("a URL needs no session"))
        named = parse_arms([f"plain={url}/plain", f"fast={url}/fast"])
        assert len(existing_rounds(named, lambda: pytest.fail("a URL needs no session"))) == 1


def test_a_mode_is_demanded_or_taken_on_trust() -> None:
    assert demand_mode(described(), "p-eagle").arm.mode == "p-eagle"
    assert demand_mode(described(mode="unknown"), "eagle3").arm.mode == "eagle3"
    with pytest.raises(SpecError, match="runs mode p-eagle; expected none") as raised:
        demand_mode(described(), "none")
    assert "found" not in raised.value.details, "the message says it; the command line would say it again"
