"""Compare the two P-EAGLE trainers within one budget of CPU seconds: the job of ``scripts/bench-trainers``.

Both train from one planted start on the same rollouts, each process tree on a core of its own, as many steps
as its budget allows. Short runs choose the learning rate of each, on prompts of their own. The engine then
measures one head of each trainer for each seed. What ``--work`` has is not done again: a later call can add
seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.load import LoadOptions, WorkItem, drive_load, make_target, run_quietly
from peagle_bench.results import provenance
from peagle_bench.workloads.public_datasets import read_prompts
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import EngineError, SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from sagemaker_local.engine.trainer_env import LOCK, ensure_trainer, train_command, train_environ
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import ALONE, MODEL
from scripts.bench.job import run_job, write_json
from scripts.bench.local_stack import LocalStack, Say
from scripts.bench.progress import Reporter
from scripts.bench.training.trainers_page import SPECULATORS, USERS, Answers, length, page, ratios, verdict
from scripts.lib import train_env
from scripts.lib.locks import read_pins
from scripts.train_tiny.peagle import lay_out

ROOT = Path(__file__).resolve().parents[3]
BUCKET, MAX_TOKENS = "trainers", 128
#: The second is what `scripts/train-tiny` gives speculators, and for users' heads above the default of 1e-4.
RATES = {SPECULATORS: (7e-4, 2e-3, 6e-3, 1.8e-2), USERS: (1e-4, 3e-4, 1e-3, 3e-3)}
PROBES = (5, 25)  #: steps of the two runs that show the seconds a step
TOLERANCE = 0.05  #: by which a run may miss its budget
ATTEMPTS = 3  #: at a pair of runs that both meet the budget


@dataclass(frozen=True)
class Run:
    """One training; ``cpu_s`` is that of its whole process tree, 0 before it has run."""

    trainer: str
    steps: int
    rate: float
    seed: int = 0
    cpu_s: float = 0.0

    @property
    def name(self) -> str:
        """Name of the run's folder and endpoint."""
        return f"{self.trainer}-{self.steps}-{self.rate:g}-{self.seed}".replace(".", "p")


def steps_within(budget_s: float, runs: Sequence[Run]) -> int:
    """Return the steps that fit into a budget, by a line through steps and CPU seconds of finished runs.

    Raises:
        SpecError: the budget does not allow one step.
    """
    line = statistics.linear_regression([run.steps for run in runs], [run.cpu_s for run in runs])
    steps = int((budget_s - line.intercept) / line.slope) if line.slope > 0 else 0
    if steps < 1:
        raise SpecError(
            f"a budget of {budget_s:g} CPU seconds is too small: found {line.intercept:.0f} before the first"
            f" step, and {line.slope:.2f} a step",
            next_step="Give more with --budget and --short.",
        )
    return steps


def precision_of(cpu: Path = Path("/proc/cpuinfo")) -> str:
    """Return bfloat16 if the processor has instructions for it, else float32: for speculators."""
    text = cpu.read_text(encoding="utf-8") if cpu.is_file() else ""
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(text.split()) else "float32"


def call(command: Sequence[str], environ: Mapping[str, str], log: Path) -> float:
    """Run a process to its end and return the CPU seconds of its tree.

    Raises:
        EngineError: it failed.
    """
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        said = f"a trainer ended with status {process.returncode}"
        raise EngineError(said, details={"log_tail": tail}, next_step=f"Read {log}.")
    return round(usage.ru_utime + usage.ru_stime, 1)


class Trainings:
    """Runs of both trainers below ``work``, each trainer on its own core; finished ones are read back."""

    def __init__(self, work: Path, cores: Sequence[int], precision: str, reporter: Reporter) -> None:
        self._work, self._precision = work, precision
        self._cores = dict(zip((SPECULATORS, USERS), cores, strict=True))
        self._speculators, self._users = train_env.ensure_trainer(reporter.say), ensure_trainer(reporter.say)
        self._module = [str(self._speculators), "-m", "scripts.bench.training.with_speculators"]

    def prepare(self, rollouts: Path | None) -> None:
        """Write rollouts and common start, once; ``rollouts``: a work folder of train-tiny to copy from.

        Raises:
            SpecError: its target is not the one that ships.
        """
        work, shipped = self._work, weights_dir()
        shutil.copytree(shipped / "p-eagle", work / "shipped", dirs_exist_ok=True)
        if (work / "warm").is_dir():
            return
        shutil.copytree(shipped / "target", work / "target", dirs_exist_ok=True)
        if rollouts is not None and not (work / "rollouts.json").exists():
            theirs, ours = (folder / "target" / "model.safetensors" for folder in (rollouts, shipped))
            if theirs.read_bytes() != ours.read_bytes():
                raise SpecError(f"--rollouts {rollouts}: found another target than the one that ships")
            shutil.copytree(rollouts / "rollouts", work / "rollouts", dirs_exist_ok=True)
            shutil.copy(rollouts / "rollouts.json", work)
        words = [*self._module, "prepare", str(work), str(shipped / "eagle3")]
        call(words, self._environ(work), work / "prepare.log")

    def together(self, runs: Sequence[Run]) -> list[Run]:
        """Train one head of each trainer at the same time, so that both have the same neighbour."""
        with ThreadPoolExecutor(len(runs)) as pool:
            return list(pool.map(self._one, runs))

    def head(self, run: Run) -> Path:
        """Folder of a run's head, in vLLM's layout."""
        return self._work / "runs" / run.name / ("head" if run.trainer == SPECULATORS else "ml/model")

    def _one(self, run: Run) -> Run:
        folder = self._work / "runs" / run.name
        if (folder / "run.json").is_file():
            return Run(**json.loads((folder / "run.json").read_text(encoding="utf-8")))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.sched_setaffinity(0, {self._cores[run.trainer]})  # of this thread, and of what it starts
        environ = self._environ(folder)
        if run.trainer == SPECULATORS:
            for name in ("target", "rollouts", "rollouts.json", "warm"):
                (folder / name).symlink_to(self._work / name)
            chosen = [str(run.steps), str(run.rate), str(run.seed), self._precision]
            command = [*self._module, "train", str(folder), *chosen]
        else:
            own = {"max_steps": run.steps, "learning_rate": run.rate, "seed": run.seed}
            lay_out(folder / "ml", self._work, own)
            command, environ = train_command(self._users), train_environ(environ, folder / "ml")
        done = replace(run, cpu_s=call(command, environ, folder / "log"))
        write_json(folder / "run.json", asdict(done))
        return done

    def _environ(self, home: Path) -> dict[str, str]:
        fixed = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT)}
        return {"PATH": os.environ["PATH"], "HOME": str(home), **fixed}


class Engine:
    """The local SageMaker, which measures heads on two endpoints at a time."""

    def __init__(self, stack: LocalStack, prompts: Mapping[str, Sequence[WorkItem]], k: int) -> None:
        self._stack, self._prompts, self._k = stack, prompts, k
        self._s3 = stack.session.client("s3")
        self._s3.create_bucket(Bucket=BUCKET)

    def measure(self, heads: Mapping[str, Path], prompts: str) -> dict[str, Answers]:
        """Return the answers of each head to a set of prompts; kept beside the head for a later call."""
        items = self._prompts[prompts]
        ids, found = {item.prompt_id for item in items}, dict[str, Answers]()
        files = {name: head.parent / f"{head.name}-{prompts}.json" for name, head in heads.items()}
        for name, file in files.items():
            found[name] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        missing = [name for name in heads if set(found[name]) != ids]
        for names in (missing[at : at + 2] for at in range(0, len(missing), 2)):
            endpoints = self._stack.deploy({name: self._spec(name, heads[name]) for name in names})
            for name in names:
                found[name] = self._answers(endpoints[name].name, items)
                files[name].write_text(json.dumps(found[name]), encoding="utf-8")
            self._stack.delete(names)
        return found

    def _spec(self, name: str, head: Path) -> EndpointSpec:
        for file in ("config.json", "model.safetensors"):
            self._s3.put_object(Bucket=BUCKET, Key=f"{name}/{file}", Body=(head / file).read_bytes())
        return EndpointSpec(
            name=name,
            model=MODEL,
            speculation={"mode": "p-eagle", "num_speculative_tokens": self._k, "draft_head": name},
            head_uri=f"s3://{BUCKET}/{name}/",
            # A head that diverged would fail the gate's canary, and its endpoint would never be in service.
            serving={"env": {"PEAGLE_GATE": "off"}},
            lifecycle={"max_lifetime_hours": 4},
        )

    def _answers(self, endpoint: str, items: Sequence[WorkItem]) -> Answers:
        session = self._stack.session
        target = make_target(session, describe_endpoint(session, endpoint).arm)
        options = LoadOptions(requests=len(items), warm_up_requests=0, slices=False)
        records = run_quietly(lambda: drive_load(target, ALONE, items, options=options)).records
        found = {
            each.prompt_id: (each.drafts + each.accepted, each.drafts)
            for each in records
            if each.error is None and each.drafts is not None and each.accepted is not None
        }
        if len(found) < len(items):
            raise EngineError(f"{endpoint}: {len(found)} of {len(items)} prompts answered with draft counts")
        return found


def equal_pair(
    together: Callable[[Sequence[Run]], list[Run]],
    wanted: Sequence[Run],
    costs: Mapping[str, list[Run]],
    budget_s: float,
    say: Say,
) -> list[Run]:
    """Train one head of each trainer, both within 5% of the budget; a pair that missed it is repeated.

    Each run is added to ``costs``, so the next one's steps are known better.

    Raises:
        EngineError: three pairs missed it.
    """
    for _ in range(ATTEMPTS):
        plan = [(run, steps_within(budget_s, costs[run.trainer])) for run in wanted]
        runs = together([replace(run, steps=steps, cpu_s=0.0) for run, steps in plan])
        say(f"   {', '.join(f'{run.name} {run.cpu_s} s' for run in runs)}")
        for run in runs:
            costs[run.trainer].append(run)
        if all(abs(run.cpu_s / budget_s - 1) <= TOLERANCE for run in runs):
            return runs
    raise EngineError(
        f"{ATTEMPTS} pairs of runs missed the budget of {budget_s:g} CPU seconds by more than"
        f" {TOLERANCE:.0%}; the last: {', '.join(f'{run.trainer} {run.cpu_s:g} s' for run in runs)}",
        next_step="Run it again while nothing else uses the machine; finished runs are kept.",
    )


def prompt_sets(tuning: int, final: int) -> dict[str, list[WorkItem]]:
    """Split prompts from files that neither target nor heads were trained on; the sets share none."""
    body = {"max_tokens": MAX_TOKENS, "temperature": 0}
    rows = read_prompts(weights_dir() / "held-out.jsonl")[: tuning + final]
    items = [WorkItem(row.id, {"prompt": row.text, **body}) for row in rows]
    return {"tuning": items[:tuning], "final": items[tuning:]}


def libraries() -> dict[str, str]:
    """Return the versions of both trainers' libraries, from their locks."""
    pins = [pin for lock in (train_env.LOCK, LOCK) for pin in read_pins(lock.read_text(encoding="utf-8"))]
    versions = {pin.key: pin.version for pin in pins}
    return {name: versions[name] for name in ("speculators", "nemo-automodel", "torch")}


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Prepare, search rates, train, measure, decide; write page and record."""
    options.work.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    cores = [int(core) for core in options.cores.split(",")]
    trainings = Trainings(work, cores, options.precision, reporter)
    with reporter.phase("rollouts and start"):
        trainings.prepare(options.rollouts)
    k = load_catalog().model(MODEL).default_num_speculative_tokens["p-eagle"]
    prompts = prompt_sets(options.tuning_prompts, options.prompts)
    with reporter.phase("short runs"):
        probes = [trainings.together([Run(each, n, RATES[each][1]) for each in RATES]) for n in PROBES]
        costs = {each: [pair[at] for pair in probes] for at, each in enumerate(RATES)}
        steps = {each: steps_within(options.short, costs[each]) for each in RATES}
        pairs = zip(*RATES.values(), strict=True)
        rounds = [
            [Run(each, steps[each], rate) for each, rate in zip(RATES, pair, strict=True)] for pair in pairs
        ]
        short = [run for runs in rounds for run in trainings.together(runs)]
    with LocalStack(reporter.say) as stack:
        engine = Engine(stack, prompts, k)
        with reporter.phase("learning rates"):
            answers = engine.measure({run.name: trainings.head(run) for run in short}, "tuning")
        lengths = {run: length(answers[run.name]) for run in short}
        best = [max((run for run in short if run.trainer == each), key=lengths.__getitem__) for each in RATES]
        for run in short:
            costs[run.trainer].append(run)
        finals: list[Run] = []
        with reporter.phase("training"):
            for seed in range(1, options.seeds + 1):  # seed 0 chose the rates
                wanted = [replace(run, seed=seed) for run in best]
                finals += equal_pair(trainings.together, wanted, costs, options.budget, reporter.say)
        heads = {name: work / name for name in ("start", "shipped")}
        with reporter.phase("acceptance"):
            answers = engine.measure(heads | {run.name: trainings.head(run) for run in finals}, "final")
        stack.delete_all()
    lengths |= {run: length(answers[run.name]) for run in finals}
    both, alone = ratios(
        *([answers[run.name] for run in finals if run.trainer == each] for each in (USERS, SPECULATORS))
    )
    record = {
        "origin": provenance.origin(0),
        "command": " ".join(["scripts/bench-trainers", *options.words]),
        "note": options.note,
        "libraries": libraries(),
        "budget_s": options.budget,
        "short_s": options.short,
        "precision": {SPECULATORS: options.precision, USERS: "float32"},
        "num_speculative_tokens": k,
        "prompts": {name: len(items) for name, items in prompts.items()},
        "short": [{**asdict(run), "acceptance_length": lengths[run]} for run in short],
        "finals": [{**asdict(run), "acceptance_length": lengths[run]} for run in finals],
        "references": {name: length(answers[name]) for name in heads},
        "ratio": asdict(both),
        "ratio_over_prompts": asdict(alone),
        "decision": verdict(both),
    }
    write_json(options.page.with_suffix(".json"), record)
    options.page.write_text(page(record), encoding="utf-8")
    print(record["decision"])
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line and run the job."""
    given = sys.argv[1:] if words is None else list(words)
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="scripts/bench-trainers", description=about)
    parser.add_argument("--work", type=Path, default=Path("results/trainers"), help="reused (%(default)s)")
    parser.add_argument(
        "--rollouts", type=Path, help="work folder of scripts/train-tiny to copy rollouts from"
    )
    parser.add_argument("--budget", type=float, default=660, help="CPU seconds of a head (%(default)s)")
    parser.add_argument("--short", type=float, default=150, help="of a run that tries a rate (%(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="heads of each trainer (%(default)s)")
    parser.add_argument("--prompts", type=int, default=160, help="to compare on (%(default)s)")
    parser.add_argument("--tuning-prompts", type=int, default=48, help="to choose rates on (%(default)s)")
    parser.add_argument("--cores", default="0,1", help="core of each trainer (%(default)s)")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default=precision_of())
    parser.add_argument("--note", default="Nothing else ran.", help="a sentence: what else the machine did")
    parser.add_argument("--page", type=Path, default=Path("docs/reference/trainers.md"))
    options = parser.parse_args(given, argparse.Namespace(words=given))
    return run_job(lambda reporter: job(options, reporter))


if __name__ == "__main__":
    sys.exit(main())
