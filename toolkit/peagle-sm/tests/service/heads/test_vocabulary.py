"""The vocabulary file that a model needs to chat: fetched, checked, and staged beside the weights."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from peagle_sm.aws.storage.downloads import fetch
from peagle_sm.core.catalog import Vocabulary, load_catalog
from peagle_sm.core.errors import ServiceFault
from peagle_sm.core.heads.reading import Folder
from peagle_sm.service.heads import Sources, plan_staging, stage
from peagle_sm.service.heads.checking import Place
from tests.local.serving import Server, local_session

CONTENT = b"IQ== 0\nIg== 1\n"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Vocabulary]:
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "words.tiktoken").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Vocabulary(
            name="words.tiktoken",
            url=f"http://127.0.0.1:{server.server_port}/words.tiktoken",
            size=len(CONTENT),
            sha256=hashlib.sha256(CONTENT).hexdigest(),
        )
        server.shutdown()
        thread.join()


def test_the_file_is_fetched_once_and_checked(published: Vocabulary, tmp_path: Path) -> None:
    got: list[int] = []
    fetch(published, tmp_path / "cache", got.append)
    assert (tmp_path / "cache" / "words.tiktoken").read_bytes() == CONTENT
    fetch(published.model_copy(update={"url": "http://127.0.0.1:9/gone"}), tmp_path / "cache", got.append)
    assert got == [len(CONTENT)] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [({"url": "http://127.0.0.1:9/x"}, "cannot download"), ({"sha256": "0" * 64}, "wrong content")],
)
def test_what_cannot_be_fetched_says_where_to_put_it(
    published: Vocabulary, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    with pytest.raises(ServiceFault, match=message) as failed:
        fetch(published.model_copy(update=change), tmp_path / "cache")
    assert f"put it at {tmp_path / 'cache' / 'words.tiktoken'}" in str(failed.value.next_step)
    assert not (tmp_path / "cache").exists(), "no partial file"


def test_gpt_oss_needs_the_file_and_a_folder_that_has_it_does_not() -> None:
    sources = Sources(lambda: pytest.fail("no session is needed"))

    def lacking(name: str, *files: str, model: str | None = None) -> str | None:
        place = Place(name, Folder(name, dict.fromkeys(files, 1), lambda *_: b""), model=model)
        vocabulary = sources.vocabulary(place)
        return None if vocabulary is None else vocabulary.name

    url = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    assert lacking("openai/gpt-oss-20b", "config.json") == url
    assert lacking("x", "config.json", model="gpt-oss-120b") == url
    assert lacking("openai/gpt-oss-20b", "config.json", "o200k_base.tiktoken") is None
    assert lacking("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "config.json") is None
    assert lacking("folder", "config.json") is None


@pytest.mark.slow
def test_staging_a_model_adds_its_vocabulary_once(
    server: Server, published: Vocabulary, tmp_path: Path
) -> None:
    """Also to a model that an earlier version of peagle-sm staged without it."""
    session = local_session(server)
    session.client("s3").create_bucket(Bucket="vocabulary")
    earlier = load_catalog()
    entry = earlier.models["tiny-code"].model_copy(update={"vocabulary": published})
    catalog = earlier.model_copy(update={"models": {**earlier.models, "tiny-code": entry}})
    sent = []
    for known in (earlier, catalog, catalog):
        sources = Sources(lambda: session, catalog=known)
        plan = plan_staging("tiny-code", "s3://vocabulary/tiny/", sources=sources)
        staged = stage(plan, sources=sources, cache=tmp_path / "cache", version="1")
        sent.append(staged.sent)
    assert sent[1:] == [1, 0]
    assert [part.kind for part in plan.parts] == ["target", "vocabulary", "head"]
    body = session.client("s3").get_object(Bucket="vocabulary", Key="tiny/words.tiktoken")["Body"].read()
    assert body == CONTENT
    assert "words.tiktoken" in [file.name for file in staged.manifest.files]
