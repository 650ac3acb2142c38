"""The Lambdas' package for the CDK: a zip whose name in the template depends on its content alone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from aws_cdk import AssetHashType, CfnParameter, Stack
from aws_cdk.aws_s3_assets import Asset

from peagle_sm.core.guard.package import digest, package_files, zipped

RUNTIME = Path(__file__).parent / "runtime"


@dataclass(frozen=True)
class CodeLocation:
    """Where CloudFormation finds the package; both may be references into the template."""

    bucket: Any
    key: Any


def cdk_asset(stack: Stack, runtime: Path = RUNTIME) -> CodeLocation:
    """Build the package and let the CDK's command line upload it."""
    content = package_files(runtime, files("tzdata"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "peagle-guard.zip"
        path.write_bytes(zipped(content))
        asset = Asset(
            stack,
            "Runtime",
            path=str(path),
            asset_hash=digest(content),
            asset_hash_type=AssetHashType.CUSTOM,
            display_name="peagle-guard runtime",
        )
    return CodeLocation(asset.s3_bucket_name, asset.s3_object_key)


def parameters(stack: Stack) -> CodeLocation:
    """Leave the place open: `peagle-sm guard install` uploads the package and says where it lies."""
    bucket = CfnParameter(stack, "AssetBucket", description="The bucket that holds the Lambdas' package.")
    key = CfnParameter(stack, "AssetKey", description="The key of the Lambdas' package in that bucket.")
    return CodeLocation(bucket.value_as_string, key.value_as_string)
