"""Access to moto's objects, roles, parameters, schedules and queues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from sagemaker_local.clock import LocalClock
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.policies import trusts
from sagemaker_local.other_services.simulation import allows
from sagemaker_local.scheduler.schedules import Schedule


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Split ``s3://bucket/key`` into bucket and key.

    Raises:
        ValueError: it is not an S3 URI.
    """
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{uri!r} is not an S3 URI; expected s3://<bucket>/<prefix>/")
    return parts.netloc, parts.path.lstrip("/")


class Artifacts:
    """Model artifacts in moto's S3. All methods block: call them in a thread."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket unless it exists."""
        store = self._moto.backend("s3")
        if bucket not in store.buckets:
            store.create_bucket(bucket, self._moto.region)

    def upload(self, files: Iterable[tuple[str, Path]], bucket: str, prefix: str) -> None:
        """Put files (name, path) under a prefix."""
        store = self._moto.backend("s3")
        for name, path in files:
            store.put_object(bucket, f"{prefix}{name}", path.read_bytes())

    def put(self, content: bytes, bucket: str, key: str) -> None:
        """Put one object."""
        self._moto.backend("s3").put_object(bucket, key, content)

    def exists(self, uri: str) -> bool:
        """Return whether an S3 URI names an object or a prefix with objects."""
        try:
            return bool(self._keys(uri))
        except ValueError:
            return False

    def read(self, bucket: str, key: str) -> bytes | None:
        """Return an object's bytes; None if it does not exist."""
        store = self._moto.backend("s3")
        if bucket not in store.buckets:
            return None
        stored = store.get_object(bucket, key)
        return None if stored is None else bytes(stored.value)

    def download(self, uri: str, directory: Path) -> None:
        """Copy an object, or everything under a prefix, into a directory.

        Raises:
            FileNotFoundError: nothing is there.
            ValueError: it is not an S3 URI.
        """
        keys = self._keys(uri)
        bucket, prefix = split_s3_uri(uri)
        if not keys:
            raise FileNotFoundError(f"no objects at {uri} in the local S3")
        base = prefix if prefix.endswith("/") else str(PurePosixPath(prefix).parent) + "/"
        for key in keys:
            name = key.removeprefix(base.removeprefix("./"))
            if not name or name.endswith("/"):
                continue  # the marker object of a "folder"
            self.save(bucket, key, directory, name)

    def save(self, bucket: str, key: str, directory: Path, name: str) -> None:
        """Copy an object to a name below a directory.

        Raises:
            ValueError: the name leads out of the directory.
        """
        path = (directory / name).resolve()
        if not path.is_relative_to(directory.resolve()):
            raise ValueError(f"object {key} in bucket {bucket} would be written outside of its directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._moto.backend("s3").get_object(bucket, key).value)

    def beginning_with(self, uri: str) -> list[str]:
        """Return the keys, in order, that begin with the key of an S3 URI, whole folder names or not."""
        bucket, prefix = split_s3_uri(uri)
        store = self._moto.backend("s3")
        if bucket not in store.buckets:
            return []
        return sorted(str(key) for key in store.buckets[bucket].keys if str(key).startswith(prefix))

    def _keys(self, uri: str) -> list[str]:
        bucket, prefix = split_s3_uri(uri)
        store = self._moto.backend("s3")
        if bucket not in store.buckets:
            return []
        keys = [str(key) for key in store.buckets[bucket].keys]
        if prefix and not prefix.endswith("/"):
            return [key for key in keys if key == prefix]
        return sorted(key for key in keys if key.startswith(prefix))


class Roles:
    """IAM roles in moto."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto

    def make(self, name: str, service: str, actions: list[str]) -> str:
        """Create a role that ``service`` may assume and that allows ``actions``; return its ARN."""
        trust = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
        policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}],
        }
        iam = self._moto.backend("iam")
        role = iam.create_role(name, json.dumps(trust), "/", None, "Made by peagle-sm local", [], None)
        iam.put_role_policy(name, "what-it-needs", json.dumps(policy))
        return str(role.arn)

    def allows(self, arn: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """Return whether the role's own policies allow an action."""
        return allows(self._moto.backend("iam"), arn, action, resource, context)

    def trusts(self, arn: str, service: str) -> bool:
        """Return whether the role exists and lets ``service`` assume it."""
        roles = self._moto.backend("iam").get_roles()
        role = next((role for role in roles if role.arn == arn), None)
        return role is not None and trusts(json.loads(role.assume_role_policy_document), service)


class Parameters:
    """The Parameter Store in moto."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto

    def value(self, name: str) -> str | None:
        """Return a parameter's value; None if it does not exist."""
        parameter = self._moto.backend("ssm").get_parameter(name)
        return None if parameter is None else str(parameter.value)


class Schedules:
    """EventBridge schedules in moto."""

    def __init__(self, moto: Moto, clock: LocalClock) -> None:
        self._moto = moto
        self._clock = clock

    def all(self) -> list[Schedule]:
        """List every schedule; new ones get their creation time from the local clock."""
        schedules = []
        for group in list(self._moto.backend("scheduler").schedule_groups.values()):
            for kept in list(group.schedules.values()):
                if not hasattr(kept, "peagle_dated"):
                    kept.peagle_dated = True
                    kept.creation_date = kept.last_modified_date = self._clock.now().timestamp()
                schedules.append(_schedule(kept))
        return schedules

    def remove(self, schedule: Schedule) -> None:
        """Delete a schedule."""
        self._moto.backend("scheduler").delete_schedule(schedule.group, schedule.name)


def _schedule(kept: Any) -> Schedule:
    return Schedule(
        group=kept.group_name,
        name=kept.name,
        arn=kept.arn,
        expression=kept.schedule_expression,
        timezone=kept.schedule_expression_timezone or "UTC",
        start=_moment(kept.start_date),
        end=_moment(kept.end_date),
        enabled=kept.state == "ENABLED",
        target=kept.target,
        delete_after_completion=kept.action_after_completion == "DELETE",
        revision=float(kept.last_modified_date),
    )


def _moment(value: Any) -> datetime | None:
    """Read a time as moto keeps it: epoch seconds, or the text that the client sent."""
    if value in (None, ""):
        return None
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except ValueError:
        parsed = datetime.fromisoformat(str(value))
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def send_to_queue(moto: Moto, queue_arn: str, body: str, attributes: dict[str, str]) -> None:
    """Send a message to an SQS queue of moto's."""
    sent = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value}
    moto.backend("sqs").send_message(queue_arn.rsplit(":", 1)[-1], body, message_attributes=sent)
