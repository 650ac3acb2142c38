"""A boto3 session for libraries that make their own clients: all of them reach the local SageMaker."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from peagle_sm.aws.session.session import LOCAL_KEY, LocalTarget, isolated_botocore


class LocalBoto3(boto3.Session):
    """Its clients and resources go to the local server, whatever address is asked for.

    The SageMaker SDK names STS's public address by itself, which ``AWS_ENDPOINT_URL`` does not outweigh.
    """

    def __init__(self, target: LocalTarget) -> None:
        """Use dummy keys, and nothing of the user's own AWS configuration."""
        super().__init__(
            botocore_session=isolated_botocore(),
            aws_access_key_id=LOCAL_KEY,
            aws_secret_access_key=LOCAL_KEY,
            region_name=target.region,
        )
        self.target = target

    def client(self, *args: Any, **options: Any) -> Any:
        """As boto3's, but for the address, which is the local server's."""
        # Path-style S3 and no proxy: both would take the call away from this machine.
        ours = Config(s3={"addressing_style": "path"}, proxies={})
        given = options.get("config")
        options["config"] = ours if given is None else given.merge(ours)
        options["endpoint_url"] = self.target.endpoint_url
        return super().client(*args, **options)
