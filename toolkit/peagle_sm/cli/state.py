"""What one run of the command line knows: the global options and the outside world, both replaceable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Settings:
    """The global options as typed; None means that the flag was not given."""

    format: str | None = None
    profile: str | None = None
    region: str | None = None
    local: bool | None = None
    local_port: int | None = None
    debug: bool | None = None


def _stdin_is_tty() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _stderr_is_tty() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@dataclass
class State:
    """The object that click carries; tests pass their own environment, terminal, clock and sleep."""

    settings: Settings = field(default_factory=Settings)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    stdin_is_tty: Callable[[], bool] = _stdin_is_tty
    stderr_is_tty: Callable[[], bool] = _stderr_is_tty
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    spec_region: str | None = None
    """The region of ./peagle.yaml, where the endpoint's name comes from that file."""

    @property
    def format(self) -> str:
        """`table`, `json` or `quiet`."""
        return self.settings.format or "table"

    @property
    def local_port(self) -> int | None:
        """The port of the local server that was asked for, or None for the only one.

        Raises:
            SpecError: PEAGLE_SM_LOCAL_PORT is not a port.
        """
        from peagle_sm.aws.session.place import local_port

        return local_port(self.settings.local_port, self.environ)

    @property
    def local(self) -> bool:
        """Whether commands go to the local SageMaker: flag, then environment, then no.

        Raises:
            SpecError: PEAGLE_SM_LOCAL or PEAGLE_SM_LOCAL_PORT has a value that is not allowed.
        """
        from peagle_sm.aws.session.place import wants_local

        return wants_local(self.settings.local, self.settings.local_port, self.environ)

    @property
    def flags(self) -> str:
        """The options that make a suggested command reach the same place, with a leading blank."""
        if self.settings.local_port is not None:
            return f" --local-port {self.settings.local_port}"
        if self.local:
            return " --local"
        told = (("--profile", self.settings.profile), ("--region", self.settings.region))
        return "".join(f" {option} {value}" for option, value in told if value)

    def region(self, from_spec: str | None = None) -> str | None:
        """Flag, then environment, then the spec; None leaves it to the profile."""
        from peagle_sm.aws.session.place import region_of

        return region_of(self.settings.region, self.environ, from_spec)
