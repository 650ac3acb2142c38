"""A Hugging Face hub on this machine: the routes that its library asks for, and the ways in which it fails.

Source of the routes and headers: `huggingface_hub` 2.4.0 (``HfApi.model_info``, ``get_hf_file_metadata``,
``hf_raise_for_status``) and its documentation of the HTTP API.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin")


@dataclass
class Repository:
    """A model: its files at one commit. ``token`` None is open to all."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    licence: str | None = "apache-2.0"
    gated: bool = False
    token: str | None = None


@dataclass
class LocalHub:
    """The hub; ``cut_after`` ends a file's answer after so many bytes, ``requests`` has what was asked."""

    url: str = ""
    models: dict[str, Repository] = field(default_factory=dict)
    cut_after: int | None = None
    cuts_left: int = 0
    damaged: frozenset[str] = frozenset()
    status: int | None = None
    ignores_ranges: bool = False
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def add(self, name: str, directory: Path, **more: Any) -> Repository:
        """Take a folder's files as a model."""
        files = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }
        self.models[name] = Repository(files, **more)
        return self.models[name]

    def downloads(self, suffix: str) -> list[str | None]:
        """The Range of each request for a file's bytes."""
        return [span for method, path, span in self.requests if method == "GET" and path.endswith(suffix)]


def blob_id(content: bytes) -> str:
    """What git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob_id(content)}
    if name.endswith(LARGE):
        sha256 = hashlib.sha256(content).hexdigest()
        row["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
    return row


def _handler(hub: LocalHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def do_HEAD(self) -> None:
            self._route()

        def do_GET(self) -> None:
            self._route()

        def _route(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path, self.headers.get("Range")))
            if hub.status is not None:
                self._error(hub.status, None)
                return
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._info("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
            elif parts[0] == "large":
                self._bytes(hub.models["/".join(parts[1:3])].files["/".join(parts[3:])], path)
            elif len(parts) > 4 and parts[2] == "resolve":
                self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            else:
                self._error(404, "EntryNotFound")

        def _open(self, name: str, revision: str) -> Repository | None:
            model = hub.models.get(name)
            bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if model is None or (model.token and not model.gated and bearer != model.token):
                self._error(401, "RepoNotFound")
                return None
            if model.gated and bearer != model.token:
                self._error(403 if bearer else 401, "GatedRepo")
                return None
            if revision not in ("main", model.commit):
                self._error(404, "RevisionNotFound")
                return None
            return model

        def _info(self, name: str, revision: str) -> None:
            model = self._open(name, revision)
            if model is None:
                return
            card = {} if model.licence is None else {"license": model.licence}
            self._send(
                200,
                json.dumps(
                    {
                        "_id": "1",
                        "id": name,
                        "modelId": name,
                        "sha": model.commit,
                        "gated": "manual" if model.gated else False,
                        "private": False,
                        "tags": [],
                        "downloads": 0,
                        "cardData": card,
                        "siblings": [_sibling(n, content) for n, content in model.files.items()],
                    }
                ).encode(),
                {"Content-Type": "application/json"},
            )

        def _resolve(self, name: str, revision: str, file: str) -> None:
            model = self._open(name, revision)
            if model is None:
                return
            content = model.files.get(file)
            if content is None:
                self._error(404, "EntryNotFound")
                return
            row = _sibling(file, content)
            answer = {"X-Repo-Commit": model.commit}
            if "lfs" not in row:
                self._bytes(content, file, {**answer, "ETag": f'"{row["blobId"]}"'})
                return
            # Another host, as the hub's CDN is: the client asks for a large file's facts here only.
            host = hub.url.replace("127.0.0.1", "localhost")
            tag, place = row["lfs"]["sha256"], f"{host}/large/{name}/{file}"
            linked = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(content)), "Location": place}
            self._send(302, b"", {**answer, **linked})

        def _bytes(self, content: bytes, path: str, more: Mapping[str, str] = {}) -> None:
            if path.rpartition("/")[2] in hub.damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
            span = None if hub.ignores_ranges else self.headers.get("Range")
            status, told = 200, dict(more)
            if span:
                first, _, last = span.removeprefix("bytes=").partition("-")
                begin, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
                told["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
                content, status = content[begin : end + 1], 206
            self._send(status, content, told, cut=path.endswith(LARGE))

        def _send(self, status: int, body: bytes, headers: Mapping[str, str], cut: bool = False) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if cut and hub.cuts_left > 0 and hub.cut_after is not None and len(body) > hub.cut_after:
                hub.cuts_left -= 1
                self.wfile.write(body[: hub.cut_after])
                self.close_connection = True
                return
            self.wfile.write(body)

        def _error(self, status: int, code: str | None) -> None:
            self._send(status, b'{"error": "no"}', {} if code is None else {"X-Error-Code": code})

    return Handler


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """Run a hub on a free port of this machine."""
    hub = LocalHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
