"""Fixed names of the guard, the package of its Lambdas, and its price.

The guard's stack, its Lambdas, the endpoint stacks and the command line share them. This module selects the
package's files, and makes their digest and zip. An account and region has one guard, so its names are fixed.
Role names contain the region, because IAM is global. Endpoint stacks import values from the guard's stack:
no guard, no endpoint.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import distribution
from importlib.resources.abc import Traversable

from peagle_sm.core.errors import PeagleError

GUARD_STACK = "PeagleGuard"
ENDPOINT_STACK_PREFIX = "Peagle-"
EXECUTION_ROLE_PREFIX = "peagle-execution-"
TRAINING_STACK = "PeagleTraining"
TRAINING_ROLE_PREFIX = "peagle-training-"
TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"

SWEEPER = "peagle-guard-sweeper"
SWITCH = "peagle-guard-switch"
MODEL_PROVIDER = "peagle-guard-model"
LIFETIME_PROVIDER = "peagle-guard-lifetime"
FUNCTIONS = (SWEEPER, SWITCH, MODEL_PROVIDER, LIFETIME_PROVIDER)

TABLE = "peagle-guard"
TOPIC = "peagle-guard-notices"
DEAD_LETTERS = "peagle-guard-dead-letters"
SWEEP_SCHEDULE = "peagle-guard-sweep"
SWEEP_MINUTES = 5

ALARM_ERRORS = "peagle-guard-errors"
ALARM_NO_SWEEP = "peagle-guard-no-sweep"
ALARM_DEAD_LETTERS = "peagle-guard-dead-letters"
ALARMS = (ALARM_ERRORS, ALARM_NO_SWEEP, ALARM_DEAD_LETTERS)

EXPORT_MODEL_PROVIDER = "PeagleGuard-ModelProviderArn"
EXPORT_LIFETIME_PROVIDER = "PeagleGuard-LifetimeProviderArn"
EXPORT_EXECUTION_ROLE = "PeagleGuard-ExecutionRoleArn"
EXPORT_SCHEDULER_ROLE = "PeagleGuard-SchedulerRoleArn"
EXPORT_NOTICES_TOPIC = "PeagleGuard-NoticesTopicArn"
EXPORT_DEAD_LETTERS = "PeagleGuard-DeadLettersArn"
EXPORT_SWITCH = "PeagleGuard-SwitchArn"


def endpoint_stack(endpoint: str) -> str:
    """Return the name of the stack that owns an endpoint."""
    return f"{ENDPOINT_STACK_PREFIX}{endpoint}"


def scheduler_role(region: str) -> str:
    """Return the name of the role that the lifetime schedules use."""
    return f"peagle-scheduler-{region}"


def execution_role(region: str) -> str:
    """Return the name of the execution role of the endpoints' containers."""
    return f"{EXECUTION_ROLE_PREFIX}{region}"


def asset_bucket(account: str, region: str) -> str:
    """Return the name of the bucket that `peagle-sm guard install` uploads to."""
    return f"peagle-guard-{account}-{region}"


_NOT_ZONES = frozenset(
    {
        "iso3166.tab",
        "leapseconds",
        "tzdata.zi",
        "zone.tab",
        "zone1970.tab",
        "zonenow.tab",
        "leap-seconds.list",
    }
)
"""Files of tzdata that zoneinfo does not read."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Earliest date of a zip entry: with real dates each build would be another package."""
_READABLE = 0o644 << 16


_SDK = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")
"""boto3 and its dependencies. Lambda's version is some months old and may lack a field that is sent."""
SERVICES = frozenset(
    {
        "application-autoscaling",
        "cloudformation",
        "cloudwatch",
        "dynamodb",
        "lambda",
        "resourcegroupstaggingapi",
        "sagemaker",
        "scheduler",
        "sns",
    }
)
"""Services that the guard calls; botocore has the models of 400 others."""
_LICENCES = ("LICENSE", "LICENCE", "NOTICE")


def belongs(path: str) -> bool:
    """Return whether a file of the runtime or of tzdata goes into the package."""
    parts = path.split("/")
    return (
        "__pycache__" not in parts
        and not any(part.startswith(".") for part in parts)
        and not path.endswith((".pyc", ".md"))
    )


def digest(files: Mapping[str, bytes]) -> str:
    """Return a hash of names and contents: 16 hex digits.

    The zip is not hashed: another version of zlib would give other bytes.
    """
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0{len(files[path])}\0".encode())
        total.update(files[path])
    return total.hexdigest()[:16]


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip with the files sorted by name, without dates and owners."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = _READABLE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[path])
    return buffer.getvalue()


def object_key(digest_of_files: str) -> str:
    """Return the key under which `peagle-sm guard install` uploads a package."""
    return f"guard/{digest_of_files}.zip"


def files_under(root: Traversable, prefix: str = "") -> dict[str, bytes]:
    """Return the contents, by path, of a folder's files that the package needs."""
    contents: dict[str, bytes] = {}
    for entry in root.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            contents.update(files_under(entry, f"{path}/"))
        elif belongs(path):
            contents[path] = entry.read_bytes()
    return contents


def sdk_files() -> dict[str, bytes]:
    """Return the files of the installed boto3 and its dependencies.

    Raises:
        PeagleError: one of them was installed without a list of its files.
    """
    contents: dict[str, bytes] = {}
    for name in _SDK:
        installed = distribution(name).files
        if not installed:
            raise PeagleError(
                f"cannot list the files of {name}: its installation has no RECORD file",
                next_step="Install peagle-sm with pip into a virtual environment and run the command again.",
            )
        for entry in installed:
            path = entry.as_posix()
            if _of_the_sdk(path):
                contents[path] = entry.read_binary()
    return contents


def _of_the_sdk(path: str) -> bool:
    folder, *rest = path.split("/")
    if folder.endswith(".dist-info"):
        return rest[-1].upper().startswith(_LICENCES)
    if folder == ".." or not belongs(path):
        return False
    if folder == "botocore" and rest[0] == "data" and len(rest) > 2:
        return rest[1] in SERVICES and not rest[-1].startswith("examples")
    if folder == "boto3" and rest[0] in ("data", "examples"):
        return False  # resources and documentation, which the guard does not use
    return path.endswith((".py", ".json", ".json.gz", ".pem"))


SHARED = ("plan/tags_and_schedules.py", "spec/hours.py")
"""Files of the core that the Lambdas use too; they import the standard library and tzdata alone."""


def package_files(runtime: Traversable, tzdata: Traversable) -> dict[str, bytes]:
    """Return all files of the package: the guard's runtime, the core's part, boto3, time zones."""
    files = files_under(runtime) | sdk_files()
    core = resources.files("peagle_sm.core")
    files |= {f"peagle_sm/core/{path}": (core / path).read_bytes() for path in SHARED}
    files |= {f"peagle_sm/{path}__init__.py": b"" for path in ("", "core/", "core/plan/", "core/spec/")}
    zones = files_under(tzdata / "zoneinfo", "tzdata/zoneinfo/")
    files |= {path: content for path, content in zones.items() if path.rpartition("/")[2] not in _NOT_ZONES}
    files["tzdata/__init__.py"] = (tzdata / "__init__.py").read_bytes()
    files["tzdata/zones"] = (tzdata / "zones").read_bytes()
    return files


HOURS_PER_MONTH = 730
SWEEPS_PER_MONTH = HOURS_PER_MONTH * 60 // SWEEP_MINUTES
ALARM_METRICS = 7
"""Metrics in the three alarms: AWS bills each, also inside a metric expression."""
QUERIES_PER_VARIANT = 3
"""Metrics that a sweep reads per production variant or inference component."""
_SWEEP_S = 2.0
_SWEEP_GB = 0.25
_LOG_GB_PER_SWEEP = 2e-6
_WRITES_PER_SWEEP = 3

SOURCE = (
    "list prices of us-east-1 from public pages (aws.amazon.com/cloudwatch/pricing and /lambda/pricing, and "
    "pages that quote them), read in November 2026; other regions differ by some percent"
)


@dataclass(frozen=True)
class BillItem:
    """One item of the bill: ``quantity`` per month times ``usd_each``."""

    what: str
    quantity: float
    usd_each: float

    @property
    def usd(self) -> float:
        """USD per month."""
        return self.quantity * self.usd_each


@dataclass(frozen=True)
class GuardPrice:
    """Price of an idle guard, and of each watched variant, in USD per month."""

    lines: tuple[BillItem, ...]
    per_variant: BillItem
    source: str = SOURCE

    @property
    def usd_per_month(self) -> float:
        """Sum without endpoints."""
        return sum(line.usd for line in self.lines)


def guard_price() -> GuardPrice:
    """Return the guard's price; a sweep's time and writes are high estimates."""
    return GuardPrice(
        lines=(
            BillItem("metrics watched by alarms", ALARM_METRICS, 0.10),
            BillItem("GB-seconds of Lambda on Arm", SWEEPS_PER_MONTH * _SWEEP_S * _SWEEP_GB, 0.0000133334),
            BillItem("requests to Lambda", SWEEPS_PER_MONTH, 0.20e-6),
            BillItem("writes to the register", SWEEPS_PER_MONTH * _WRITES_PER_SWEEP, 1.25e-6),
            BillItem("GB of logs", SWEEPS_PER_MONTH * _LOG_GB_PER_SWEEP, 0.50),
        ),
        per_variant=BillItem(
            "metrics read for each variant watched", SWEEPS_PER_MONTH * QUERIES_PER_VARIANT, 0.01 / 1000
        ),
    )
