"""What this machine has, for `doctor`: Python, boto3, disk, memory, the engine's environment."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from peagle_sm.aws.session.folders import cache_dir
from peagle_sm.aws.session.local_server import engine_state
from peagle_sm.core.checks.preflight_facts import Machine

_EXTRA = ("aiohttp", "moto", "psutil")
_NODE_TIMEOUT_S = 10
# What the plans ask for, by the shape of botocore's model of SageMaker that must have it.
MEMBERS = {
    "ContainerDefinition": ("AdditionalModelDataSources", "ContainerMetricsConfig", "ModelDataSource"),
    "ProductionVariant": (
        "CapacityReservationConfig",
        "InferenceAmiVersion",
        "InstancePools",
        "ManagedInstanceScaling",
        "RoutingConfig",
        "VariantInstanceProvisionTimeoutInSeconds",
    ),
    "CreateEndpointConfigInput": ("MetricsConfig",),
    "S3ModelDataSource": ("ModelAccessConfig",),
}


def read_machine(root: Path | None = None) -> Machine:
    """Look at this machine; nothing is changed, and only `node --version` is run.

    Args:
        root: where a project's own `node_modules` may lie, by default the working directory.
    """
    cache = cache_dir(os.environ)
    place = next(each for each in (cache, *cache.parents) if each.exists())
    return Machine(
        python=sys.version_info[:3],
        boto3=version("boto3"),
        missing_members=tuple(_missing_members()),
        missing_packages=tuple(name for name in _EXTRA if find_spec(name) is None),
        disk_free_bytes=shutil.disk_usage(place).free,
        disk_path=str(place),
        memory_free_bytes=_free_memory(),
        engine=engine_state(),
        node=_node_version(),
        cdk=_cdk(root or Path.cwd()),
        cdk_library=find_spec("aws_cdk") is not None,
        platform=platform.system().lower(),
    )


def _missing_members() -> Iterator[str]:
    from botocore.session import Session

    model = Session().get_service_model("sagemaker")
    known = set(model.shape_names)
    for shape, members in MEMBERS.items():
        have = getattr(model.shape_for(shape), "members", {}) if shape in known else {}
        yield from (f"{shape}.{member}" for member in members if member not in have)


def _free_memory() -> int | None:
    if find_spec("psutil") is None:
        return None
    import psutil

    return int(psutil.virtual_memory().available)


def _node_version() -> str | None:
    if shutil.which("node") is None:
        return None
    try:
        done = subprocess.run(
            ["node", "--version"], capture_output=True, text=True, timeout=_NODE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cdk(root: Path) -> str | None:
    own = root / "node_modules" / ".bin" / "cdk"
    return str(own) if own.exists() else shutil.which("cdk")
