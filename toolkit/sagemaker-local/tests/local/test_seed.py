"""What a fresh local AWS holds, and how models' files get from S3 to engines."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sagemaker_local.contents.jumpstart import jumpstart_addresses
from sagemaker_local.contents.seed import PREFIXES, Address, image_uris, seed
from sagemaker_local.other_services.stores import Artifacts, Roles, split_s3_uri


class S3:
    """The few calls of moto's S3 store that are made."""

    def __init__(self) -> None:
        self.buckets: dict[str, Any] = {}

    def create_bucket(self, name: str, region: str) -> None:
        self.buckets[name] = SimpleNamespace(keys={})

    def put_object(self, bucket: str, key: str, value: bytes) -> None:
        self.buckets[bucket].keys[key] = value

    def get_object(self, bucket: str, key: str) -> Any:
        return SimpleNamespace(value=self.buckets[bucket].keys[key])


class Iam:
    """The few calls of moto's IAM store that are made."""

    def __init__(self) -> None:
        self.roles: list[Any] = []

    def create_role(self, name: str, trust: str, *_: object) -> Any:
        arn = f"arn:aws:iam::123456789012:role/{name}"
        self.roles.append(SimpleNamespace(arn=arn, assume_role_policy_document=trust))
        return self.roles[-1]

    def put_role_policy(self, role: str, name: str, document: str) -> None:
        assert json.loads(document)["Version"] == "2012-10-17"

    def get_roles(self) -> list[Any]:
        return self.roles


class Moto:
    """moto's side, with nothing of moto in it."""

    region = "us-east-1"

    def __init__(self) -> None:
        self.stores = {"s3": S3(), "iam": Iam()}

    def backend(self, service: str) -> Any:
        return self.stores[service]


@pytest.fixture
def moto() -> Any:
    return Moto()


def test_without_weights_the_seed_says_what_is_missing_and_how_to_make_it(moto: Any, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text("{}")
    seeded = seed(moto, tmp_path, jumpstart_addresses("us-east-1"))
    assert seeded.artifacts == {"target": "s3://peagle-sm-local-us-east-1/tiny-code/target/"}
    missing = "smollm2-135m-instruct/eagle3, smollm2-135m-instruct/p-eagle, eagle3, p-eagle"
    assert seeded.weights == f"shipped weights missing: {missing}; see PEAGLE_SM_WEIGHTS"
    assert seeded.image_uris == image_uris()


def test_every_part_goes_to_every_address_with_its_folders(moto: Any, tmp_path: Path) -> None:
    for part in PREFIXES:
        (tmp_path / part / "deeper").mkdir(parents=True)
        (tmp_path / part / "deeper" / "x.json").write_text(part)
    seeded = seed(moto, tmp_path, [Address("p-eagle", "elsewhere", "heads/h/")])
    assert "two draft heads" in seeded.weights
    assert moto.backend("s3").buckets["elsewhere"].keys == {"heads/h/deeper/x.json": b"p-eagle"}
    assert set(seeded.artifacts) == set(PREFIXES)
    target = "s3://peagle-sm-local-us-east-1/smollm2-135m-instruct/"
    assert not any(uri.startswith(target) for uri in seeded.artifacts.values()), "the target has files there"


def test_roles_trust_their_own_service_only(moto: Any) -> None:
    roles = Roles(moto)
    arn = roles.make("r", "scheduler.amazonaws.com", ["sagemaker:DeleteEndpoint"])
    assert roles.trusts(arn, "scheduler.amazonaws.com")
    assert not roles.trusts(arn, "sagemaker.amazonaws.com")
    assert not roles.trusts(f"{arn}-other", "scheduler.amazonaws.com")


@pytest.fixture
def artifacts(moto: Any) -> Artifacts:
    artifacts = Artifacts(moto)
    artifacts.make_bucket("b")
    for key in ("m/", "m/config.json", "m/sub/x", "model.tar.gz", "m2/config.json"):
        moto.backend("s3").put_object("b", key, key.encode())
    return artifacts


def test_a_prefix_is_copied_with_its_folders(artifacts: Artifacts, tmp_path: Path) -> None:
    artifacts.download("s3://b/m/", tmp_path)
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"config.json", "sub/x"}


def test_a_single_object_is_copied_under_its_own_name(artifacts: Artifacts, tmp_path: Path) -> None:
    artifacts.download("s3://b/model.tar.gz", tmp_path)
    assert (tmp_path / "model.tar.gz").read_bytes() == b"model.tar.gz"
    artifacts.download("s3://b/m/sub/x", tmp_path)
    assert (tmp_path / "x").read_bytes() == b"m/sub/x"


@pytest.mark.parametrize("uri", ["s3://b/absent/", "s3://b/m", "s3://nowhere/m/"])
def test_where_nothing_is_there_is_nothing_to_copy(artifacts: Artifacts, tmp_path: Path, uri: str) -> None:
    assert not artifacts.exists(uri)
    with pytest.raises(FileNotFoundError, match="no objects at"):
        artifacts.download(uri, tmp_path)


def test_no_object_is_written_outside_of_its_directory(
    moto: Any, artifacts: Artifacts, tmp_path: Path
) -> None:
    moto.backend("s3").put_object("b", "evil/../../x", b"")
    with pytest.raises(ValueError, match="outside of its directory"):
        artifacts.download("s3://b/evil/", tmp_path / "in")


@pytest.mark.parametrize("uri", ["https://b/k", "s3:///k", "b/k"])
def test_what_is_not_an_s3_uri(artifacts: Artifacts, uri: str) -> None:
    assert not artifacts.exists(uri)
    with pytest.raises(ValueError, match="is not an S3 URI"):
        split_s3_uri(uri)
