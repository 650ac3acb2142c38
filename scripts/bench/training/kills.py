"""`scripts/learn-safety kills`: `learn run` is killed at random moments of its whole duration, then ended.

Everything is real but small: the engine, the trainer, a promotion. After each kill, and at the end, the
account is looked at from outside (`scripts.bench.training.account`). A sequence has its own local SageMaker;
its record is one line of the results file, and a later call continues with the seeds that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from sagemaker_local.paths import weights_dir
from scripts.bench.job import run_job
from scripts.bench.local_stack import LocalStack
from scripts.bench.progress import Reporter
from scripts.bench.training import account, damaged_heads
from scripts.bench.training.safety_record import KILLS, append, kills_of, origin, recorded

NAME, SPEC, BUCKET = "killed", "team", "learn-kills"
STEPS = ("data", "train", "prove", "promote")
#: Seconds of each part of an undisturbed run, on two quiet cores: where the moments are drawn from.
DURATION_S: Mapping[str, float] = {"start": 5, "data": 6, "train": 30, "prove": 50, "promote": 30}
PROMPTS, GENERAL, TOKENS, AT_ONCE = 28, 10, 24, 4
_STEP = re.compile(r"step \d of \d: (\w+)")
_LONGEST_S = 420.0  #: of one process; machines are shared


@dataclass(frozen=True)
class Moment:
    """A random moment: seconds after a step began (``start``: after the process did)."""

    step: str
    after_s: float


def moments(seed: int, count: int, steps: Sequence[str] = STEPS) -> list[Moment]:
    """Draw moments evenly from the whole duration, in order."""
    rng = random.Random(f"kills/{seed}")
    parts = {name: DURATION_S[name] for name in ("start", *steps)}
    found = []
    for at in sorted(rng.uniform(0, sum(parts.values())) for _ in range(count)):
        left = at
        for name, seconds in parts.items():
            if left <= seconds:
                found.append(Moment(name, round(left, 2)))
                break
            left -= seconds
    return found


@dataclass
class KillSequence:
    """What became of one sequence: where each kill came, and what should not have been."""

    seed: int
    kills: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    invocations: int | None = None
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)


class KilledRun:
    """`learn run` as processes on one local SageMaker; all that they share is what an earlier one left."""

    def __init__(self, folder: Path, port: int, until: str, say: Callable[[str], None]) -> None:
        self._folder, self._until, self._say = folder, until, say
        program = [sys.executable, "-m", "peagle_sm", "learn", "run", str(folder / "learn.yaml")]
        options = ["--spec", str(folder / "peagle.yaml"), "--until", until, "--yes"]
        self._command = [*program, *options, "--local-port", str(port)]
        url = f"http://127.0.0.1:{port}"
        session: Any = boto3.Session("local", "local", region_name="us-east-1")
        self.client: Callable[[str], Any] = lambda name: session.client(name, endpoint_url=url)
        self.began = datetime.now(UTC)
        self.done: dict[str, Any] = {}
        self.invocations: int | None = None
        self.faults: list[str] = []

    def killed(self, moment: Moment) -> dict[str, Any]:
        """Start the run, kill it at a moment, and look at the account; return where the kill came."""
        began = time.monotonic()
        with self._process() as process:
            since, step = began, "start"
            while process.poll() is None and time.monotonic() - began < _LONGEST_S:
                now = time.monotonic()
                if (seen := self._step()) != step:
                    since, step = now, seen
                late = ("start", *STEPS).index(step) > ("start", *STEPS).index(moment.step)
                if late or (step == moment.step and now - since >= moment.after_s):
                    break
                self._look()
                time.sleep(0.02)
            ended = process.poll()
            if ended is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            self._look()
            was = {"wanted": asdict(moment), "step": step, "after_s": round(time.monotonic() - since, 2)}
            if ended is not None:
                was["ended"] = ended
                if ended:
                    self.faults.append(f"a continued run ended with {ended}: {self._last_words()}")
            self.faults += account.unlimited(self.client, datetime.now(UTC))
            return was

    def to_its_end(self) -> None:
        """Run to the end, and look for what should not be."""
        with self._process() as process:
            began = time.monotonic()
            while process.poll() is None and time.monotonic() - began < _LONGEST_S:
                self._look()
                time.sleep(0.05)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                self.faults.append(f"the run did not end within {_LONGEST_S:.0f} s: {self._last_words()}")
            elif process.returncode:
                self.faults.append(f"the run ended with {process.returncode}: {self._last_words()}")
        self._look()
        wanted = STEPS[: STEPS.index(self._until) + 1]
        if list(self.done) != list(wanted):
            self.faults.append(f"steps that are done: {', '.join(self.done)}; wanted: {', '.join(wanted)}")
        self.faults += account.unlimited(self.client, datetime.now(UTC))
        self.faults += account.left_behind(self.client, NAME)
        if self._until == "promote" and f"/{SPEC}/heads/" not in account.head_of(self.client, NAME):
            self.faults.append("the endpoint does not serve the new head")

    def again(self) -> None:
        """Run once more: a finished run must do nothing."""
        before = json.dumps(self.done)
        with self._process() as process:
            process.wait(_LONGEST_S)
        self._look()
        if process.returncode or json.dumps(self.done) != before:
            self.faults.append(f"a finished run, run again, did something: {self._last_words()}")

    def _process(self) -> subprocess.Popen[bytes]:
        self._log = self._folder / f"run-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )

    def _step(self) -> str:
        found = _STEP.findall(self._log.read_text(errors="replace"))
        return found[-1] if found else "start"

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").split("\n")[-8:])[-700:]

    def _look(self) -> None:
        """Read the state file: a step that was done must stay as it was."""
        try:
            text = (self._folder / ".peagle-learn" / SPEC / "state.json").read_text()
        except FileNotFoundError:
            return
        now = json.loads(text)["steps"]  # a kill must not leave half of it
        for name, done in self.done.items():
            if now.get(name) != done:
                self.faults.append(f"the finished step {name} was done again: {done} became {now.get(name)}")
        if "data" in now and self.invocations is None:  # until now only data asked the serving endpoint
            self.invocations = account.invocations(self.client, NAME, self.began, datetime.now(UTC))
        self.done = now


def write_world(folder: Path, stack: LocalStack, until: str) -> None:
    """Deploy an endpoint with a noisy head, and write specs for a training that starts from a whole one."""
    shipped, s3 = weights_dir(), stack.session.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    noisy = folder / "noisy.safetensors"
    tensors = damaged_heads.read(shipped / "p-eagle" / "model.safetensors")
    damaged_heads.write(noisy, damaged_heads.noisy(tensors, 0.6, 1))
    for key, path in (
        ("noisy/config.json", shipped / "p-eagle" / "config.json"),
        ("noisy/model.safetensors", noisy),
        ("whole/config.json", shipped / "p-eagle" / "config.json"),
        ("whole/model.safetensors", shipped / "p-eagle" / "model.safetensors"),
    ):
        s3.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    served = EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7, "draft_head": "noisy"},
        head_uri=f"s3://{BUCKET}/noisy/",
        serving={"max_model_len": 512},  # no long prompts: the proof is short
    )
    (folder / "peagle.yaml").write_text(dump_spec(served))
    lines = (shipped / "held-out.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"][:240] for line in lines[: PROMPTS + GENERAL]]
    for name, part in (("prompts", texts[:PROMPTS]), ("general", texts[PROMPTS:])):
        rows = [json.dumps({"prompt": text, "max_tokens": TOKENS, "temperature": 0}) for text in part]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    spec = {
        "name": SPEC,
        "target": {"model": "tiny-code"},
        "endpoint": NAME,
        "bucket": f"s3://{BUCKET}/x",
        "head": f"s3://{BUCKET}/whole/",
        "data": {
            "prompts": ["prompts.jsonl"],
            "general": "general.jsonl",
            "held_out": 0.45,
            "max_tokens": TOKENS,
            "concurrency": AT_ONCE,
        },
        "train": {
            "max_steps": 3,
            "sequence_length": 128,
            "learning_rate": 1e-6,
            "max_hours": 1,
            "checkpoint_every_steps": 1,
        },
        "prove": {"max_tokens": TOKENS},
    }
    (folder / "learn.yaml").write_text(json.dumps(spec))
    stack.deploy({NAME: served})


def sequence(seed: int, kills: int, folder: Path, reporter: Reporter, until: str = "promote") -> KillSequence:
    """Kill one run ``kills`` times, end it, and return what became of it."""
    found, began = KillSequence(seed), time.monotonic()
    steps = STEPS[: STEPS.index(until) + 1]
    with LocalStack(reporter.say) as stack:
        write_world(folder, stack, until)
        run = KilledRun(folder, stack.port, until, reporter.say)
        for moment in moments(seed, kills, steps):
            found.kills.append(run.killed(moment))
            reporter.say(f"   seed {seed}: {found.kills[-1]}; faults so far: {len(run.faults)}")
        run.to_its_end()
        run.again()
        in_data = sum(each["step"] in ("start", "data") for each in found.kills)
        found.invocations = run.invocations
        most = PROMPTS + in_data * AT_ONCE
        if run.invocations is None or not 0 < run.invocations <= most:
            run.faults.append(
                f"{run.invocations} answers were asked for; at most {most} with {in_data} kills"
            )
        found.faults = list(dict.fromkeys(run.faults))
    found.seconds = round(time.monotonic() - began, 1)
    found.provenance = origin(seed)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run the sequences that the results file lacks, as long as there is time for another."""
    parser = argparse.ArgumentParser(prog="scripts/learn-safety kills", description=__doc__)
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--kills", type=int, default=10, help="of each sequence")
    parser.add_argument("--minutes", type=float, default=600, help="begin no sequence after these")
    parser.add_argument("--output", type=Path, default=KILLS)
    asked = parser.parse_args(words)
    began = time.monotonic()

    def job(reporter: Reporter) -> int:
        have = {each["seed"] for each in recorded(asked.output)}
        for seed in (each for each in range(asked.sequences) if each not in have):
            if time.monotonic() - began > asked.minutes * 60:
                break
            folder = Path(tempfile.mkdtemp(prefix="learn-kills-"))
            with reporter.phase(f"sequence {seed}"):
                found = sequence(seed, asked.kills, folder, reporter)
            append(asked.output, found)
            for fault in found.faults:
                reporter.say(f"FAULT: {fault}")
            if not found.faults:  # else its logs tell why
                shutil.rmtree(folder)
        every = recorded(asked.output)
        where = kills_of(every)
        faults = sum(len(each["faults"]) for each in every)
        reporter.say(f"{len(every)} sequences, {sum(where.values())} kills {dict(where)}, {faults} faults")
        return 1 if faults else 0

    return run_job(job)


if __name__ == "__main__":
    sys.exit(main())
