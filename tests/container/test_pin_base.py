"""Finding the digest behind a tag, against a registry of the OCI distribution API on loopback."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pin_base import DOCKER_HUB, PinError, Reference, parse, pin

MANIFEST = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
DIGEST = "sha256:" + hashlib.sha256(MANIFEST).hexdigest()


class Registry(BaseHTTPRequestHandler):
    """Answers as a public registry does: first a challenge, then a token, then the manifest."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        here = f"http://{self.headers['Host']}"
        if self.path.startswith("/token?"):
            return self._send(200, json.dumps({"token": "anonymous"}).encode())
        if self.headers.get("Authorization") != "Bearer anonymous":
            scope = "repository:team/vllm:pull"
            return self._send(401, b"", f'Bearer realm="{here}/token",service="r",scope="{scope}"')
        if "/broken/" in self.path:
            return self._send(500, b"")
        if self.path.endswith(
            ("/manifests/v0.33.0", f"/manifests/{DIGEST}", "/manifests/sha256:" + "0" * 64)
        ):
            return self._send(200, MANIFEST)
        return self._send(404, b"{}")

    def _send(self, status: int, body: bytes, challenge: str = "") -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_tag_becomes_the_digest_of_what_the_registry_sent(registry: str) -> None:
    assert pin(parse(f"{registry}/team/vllm:v0.33.0")) == f"{registry}/team/vllm@{DIGEST}"
    assert any(
        path.startswith("/token?service=r&scope=repository%3Ateam%2Fvllm%3Apull") for path in Registry.asked
    )


def test_a_digest_is_looked_up_too(registry: str) -> None:
    assert pin(parse(f"{registry}/team/vllm@{DIGEST}")) == f"{registry}/team/vllm@{DIGEST}"


def test_another_image_in_the_place_of_a_digest_is_found_out(registry: str) -> None:
    with pytest.raises(PinError, match="not the image asked for"):
        pin(parse(f"{registry}/team/vllm@sha256:{'0' * 64}"))


def test_what_is_not_there_and_what_fails(registry: str) -> None:
    with pytest.raises(PinError, match=r"has no team/vllm:v9\.9\.9"):
        pin(parse(f"{registry}/team/vllm:v9.9.9"))
    with pytest.raises(PinError, match="answered 500"):
        pin(parse(f"{registry}/broken/vllm:v1"))
    with pytest.raises(PinError, match="does not answer"):
        pin(parse("127.0.0.1:9/team/vllm:v1"))


def test_the_script_prints_it_or_fails_with_one_line(registry: str, root: Path) -> None:
    script = root / "scripts" / "container-pin"
    done = subprocess.run([script, f"{registry}/team/vllm:v0.33.0"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{registry}/team/vllm@{DIGEST}\n")
    done = subprocess.run([script, "vllm:latest"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: 'vllm:latest': latest says nothing of the version; name a version's tag\n"


@pytest.mark.parametrize(
    ("text", "registry", "repository"),
    [
        ("vllm/vllm-openai:v0.33.0", DOCKER_HUB, "vllm/vllm-openai"),
        ("ubuntu:24.04", DOCKER_HUB, "library/ubuntu"),
        ("public.ecr.aws/deep-learning-containers/vllm:x", "public.ecr.aws", "deep-learning-containers/vllm"),
        ("localhost:5000/a/b:c", "localhost:5000", "a/b"),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, registry: str, repository: str) -> None:
    found = parse(text)
    assert (found.registry, found.repository) == (registry, repository)


@pytest.mark.parametrize(
    "text", ["", "vllm", "vllm:", "a b:c", "x@sha256:12", "x:latest", "UP/case:1", "/x:1"]
)
def test_what_names_no_image_is_an_error(text: str) -> None:
    with pytest.raises(PinError):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except PinError:
        return
    assert isinstance(found, Reference)
    assert found.wanted
