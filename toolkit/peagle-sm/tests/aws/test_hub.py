"""The hub over HTTP: commits, pieces, cuts, checksums, and each way to be refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peagle_sm.aws.storage.downloads import Hub, Snapshot
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault, SpecError
from peagle_sm.core.heads.inspect import inspect_head
from tests.heads import target_config, write_head
from tests.hub_server import LocalHub, local_hub

NAME = "owner/head"
WEIGHTS = "model.safetensors"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalHub]:
    with local_hub() as hub:
        hub.add(NAME, write_head(tmp_path / "origin"))
        yield hub


@pytest.fixture
def hub(server: LocalHub) -> Hub:
    return Hub(server.url, token="none", sleep=lambda seconds: None)


def fetch(hub: Hub, snapshot: Snapshot, to: Path) -> int:
    counted: list[int] = []
    hub.fetch(snapshot, [file.name for file in snapshot.files], to, counted.append)
    return sum(counted)


def test_a_branch_is_resolved_to_its_commit(hub: Hub, server: LocalHub) -> None:
    snapshot = hub.snapshot(NAME)
    assert (snapshot.asked, snapshot.commit, snapshot.licence) == ("main", "a" * 40, "apache-2.0")
    assert snapshot.sizes == {name: len(content) for name, content in server.models[NAME].files.items()}
    assert hub.snapshot(NAME, "a" * 40).commit == "a" * 40


def test_a_head_is_looked_at_without_its_weights(hub: Hub, server: LocalHub) -> None:
    content = server.models[NAME].files
    content[WEIGHTS] += b""  # the same object, read in pieces
    report = inspect_head(hub.folder(hub.snapshot(NAME)), target=target_config())
    assert report.faults == ()
    assert report.revision == "a" * 40
    assert {file.name: file.sha256 is not None for file in report.files}[WEIGHTS]
    assert all(span for span in server.downloads(f"resolve/{'a' * 40}/{WEIGHTS}"))


def test_a_server_that_ignores_ranges_is_read_all_the_same(hub: Hub, server: LocalHub) -> None:
    server.ignores_ranges = True
    assert inspect_head(hub.folder(hub.snapshot(NAME)), target=target_config()).faults == ()


def test_every_byte_is_fetched_once(hub: Hub, server: LocalHub, tmp_path: Path) -> None:
    snapshot = hub.snapshot(NAME)
    assert fetch(hub, snapshot, tmp_path / "to") == sum(snapshot.sizes.values())
    for name, content in server.models[NAME].files.items():
        assert (tmp_path / "to" / name).read_bytes() == content
    before = len(server.requests)
    assert fetch(hub, snapshot, tmp_path / "to") == sum(snapshot.sizes.values())
    assert len(server.requests) == before, "what is there and right is not asked for again"


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_cut_is_retried(hub: Hub, server: LocalHub, tmp_path: Path, ignores_ranges: bool) -> None:
    server.cut_after, server.cuts_left, server.ignores_ranges = 1000, 2, ignores_ranges
    fetch(hub, hub.snapshot(NAME), tmp_path / "to")
    assert (tmp_path / "to" / WEIGHTS).read_bytes() == server.models[NAME].files[WEIGHTS]


def test_a_hub_that_ends_meanwhile_is_an_error(hub: Hub, server: LocalHub, tmp_path: Path) -> None:
    snapshot = hub.snapshot(NAME)
    server.status = 503
    with pytest.raises(ServiceFault, match="503"):
        fetch(hub, snapshot, tmp_path / "to")
    server.status = None
    fetch(hub, snapshot, tmp_path / "to")


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_a_changed_byte_is_found_and_thrown_away(
    hub: Hub, server: LocalHub, tmp_path: Path, name: str
) -> None:
    snapshot = hub.snapshot(NAME)
    server.damaged = frozenset({name})
    with pytest.raises(ServiceFault, match=f"{name} of owner/head has another checksum"):
        hub.fetch(snapshot, [name], tmp_path / "to")
    assert not (tmp_path / "to" / name).exists()


def test_a_disk_that_is_too_small_is_told_before(hub: Hub, tmp_path: Path) -> None:
    snapshot = hub.snapshot(NAME)
    huge = snapshot.files[0].__class__("model.safetensors", 10**18, "0" * 64, None)
    with pytest.raises(SpecError, match=r"needs 1000000000\.0 GB"):
        hub.fetch(Snapshot(NAME, snapshot.commit, "main", None, (huge,)), ["model.safetensors"], tmp_path)


def refusal(hub: Hub, name: str = NAME, revision: str | None = None) -> PeagleError:
    with pytest.raises(PeagleError) as caught:
        hub.snapshot(name, revision)
    assert caught.value.next_step
    return caught.value


def test_each_refusal_is_typed_and_says_what_to_do(hub: Hub, server: LocalHub, tmp_path: Path) -> None:
    server.add("owner/gated", tmp_path / "origin", gated=True, token="right")
    gated = refusal(hub, "owner/gated")
    assert isinstance(gated, CredentialsError)
    assert "HF_TOKEN" in str(gated.next_step)
    assert Hub(server.url, "right").snapshot("owner/gated").commit
    assert isinstance(refusal(hub, "owner/absent"), NotFound)
    assert isinstance(refusal(hub, NAME, "b" * 40), NotFound)
    assert isinstance(refusal(hub, "no name/at all/of any"), SpecError)
    server.models[NAME].commit = ""
    assert "commit for 'main'" in str(refusal(hub))
    server.status = 503
    assert "the hub failed for owner/head (503)" in str(refusal(hub))


def test_offline_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with local_hub() as gone:
        url = gone.url
    error = refusal(Hub(url))
    assert isinstance(error, ServiceFault)
    assert "the hub does not answer for owner/head" in str(error)
    assert "give their folder instead" in str(error.next_step)
