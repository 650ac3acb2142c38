"""The files of SmolLM2 come into the local S3 when something reads them: once, for all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from sagemaker_local.contents.smollm2 import SmolLm2
from sagemaker_local.errors import EngineError
from sagemaker_local.other_services.s3 import place_read
from tests.local.serving import Server

BUCKET, PREFIX = "peagle-sm-local-us-east-1", "smollm2-135m-instruct/"
URI = f"s3://{BUCKET}/{PREFIX}"


class Moto:
    """moto's S3 as a dictionary."""

    region = "us-east-1"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def backend(self, service: str) -> Any:
        return SimpleNamespace(put_object=lambda bucket, key, value: self.objects.update({key: value}))

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(work, *arguments)


class Download:
    """A download that ends when it is told to, with a folder or with an error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.begun = 0
        self.ends: asyncio.Queue[EngineError | None] = asyncio.Queue()

    async def __call__(self, on_line: Callable[[str], None], started: object) -> Path:
        self.begun += 1
        on_line("[peagle-sm local] installing")
        error = await self.ends.get()
        if error is not None:
            raise error
        return self._folder


@pytest.fixture
def moto() -> Any:
    return Moto()


@pytest.fixture
def download(tmp_path: Path) -> Download:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    return Download(tmp_path)


@pytest.fixture
def model(moto: Any, download: Download) -> SmolLm2:
    return SmolLm2(moto, lambda pid, name: None, download)


async def test_two_readers_share_one_download_and_one_that_leaves_does_not_end_it(
    moto: Any, download: Download, model: SmolLm2
) -> None:
    lines: list[str] = []
    leaves, first, second = (
        asyncio.create_task(model.ensure(uri, lines.append)) for uri in (URI, URI, f"{URI}config.json")
    )
    await asyncio.sleep(0.01)
    leaves.cancel()
    download.ends.put_nowait(None)
    await asyncio.gather(first, second)
    assert download.begun == 1
    assert set(moto.objects) == {f"{PREFIX}config.json", f"{PREFIX}model.safetensors"}
    assert lines == ["[peagle-sm local] SmolLM2-135M-Instruct: installing"] * 3
    await model.ensure(URI, lines.append)
    assert download.begun == 1


async def test_a_failed_download_is_reported_to_all_who_wait_and_tried_again_by_the_next(
    moto: Any, download: Download, model: SmolLm2
) -> None:
    waiting = [asyncio.create_task(model.ensure(URI, lambda line: None)) for _ in range(2)]
    await asyncio.sleep(0.01)
    download.ends.put_nowait(EngineError("no network", next_step="Plug it in."))
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in errors] == ["no network", "no network"]
    assert moto.objects == {}
    download.ends.put_nowait(None)
    await model.ensure(URI, lambda line: None)
    assert download.begun == 2


async def test_a_store_that_is_full_is_an_error_with_a_next_step(
    moto: Any, download: Download, model: SmolLm2
) -> None:
    def full(bucket: str, key: str, value: bytes) -> None:
        raise OSError(28, "No space left on device")

    moto.backend = lambda service: SimpleNamespace(put_object=full)
    download.ends.put_nowait(None)
    with pytest.raises(EngineError, match="No space left on device") as caught:
        await model.ensure(URI, lambda line: None)
    assert str(caught.value.next_step).startswith("Free ")


async def test_s3_answers_a_failed_download_with_an_error_that_clients_do_not_retry(
    download: Download, model: SmolLm2
) -> None:
    download.ends.put_nowait(EngineError("no network.", next_step="Plug it in."))
    answer = await model.refusal(make_mocked_request("GET", f"/{BUCKET}?list-type=2&prefix={PREFIX}"))
    assert answer is not None
    assert 400 <= answer.status < 500
    assert answer.text is not None
    assert "<Message>no network. Plug it in.</Message>" in answer.text


@pytest.mark.parametrize(
    "uri",
    [f"{URI}README.md", f"s3://{BUCKET}/", f"s3://{BUCKET}/smollm2-135m-instruct-heads/", f"s3://b/{PREFIX}"],
)
async def test_nothing_is_downloaded_for_what_is_not_the_models(
    download: Download, model: SmolLm2, uri: str
) -> None:
    await model.ensure(uri, lambda line: None)
    assert download.begun == 0


@pytest.mark.parametrize(
    ("method", "path", "headers", "place"),
    [
        ("GET", "/b?list-type=2&prefix=m%2F", {}, "s3://b/m/"),
        ("GET", "/b/?prefix=m/&delimiter=/", {}, "s3://b/m/"),
        ("HEAD", "/b/m/config.json", {}, "s3://b/m/config.json"),
        ("GET", "/m/a%20b", {"Host": "b.localhost:8000"}, "s3://b/m/a b"),
        ("PUT", "/other/x", {"x-amz-copy-source": "/b/m/a%20b?versionId=1"}, "s3://b/m/a b"),
        ("PUT", "/b/m/config.json", {}, None),
        ("DELETE", "/b/m/config.json", {}, None),
    ],
)
def test_what_a_request_reads_from_s3(
    method: str, path: str, headers: dict[str, str], place: str | None
) -> None:
    assert place_read(make_mocked_request(method, path, headers={"Host": "localhost", **headers})) == place


def test_a_client_of_s3_never_sees_the_prefix_without_its_files(server: Server) -> None:
    s3 = server.client("s3")
    names = {row["Key"] for row in s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX)["Contents"]}
    assert {f"{PREFIX}README.md", f"{PREFIX}config.json", f"{PREFIX}model.safetensors"} <= names
