"""What the tutorial "Train a head for your model" begins with: prompts, the endpoint's spec and learn.yaml.

The traffic shifts from what SmolLM2 and its heads know to a house style: a shop for bicycles answers its
customers in a fixed form, which two examples in each prompt show. The prompts are made from parts, symptoms
and occasions, so a customer's question is short and unlike the others, as in a real help desk; the form of
the answers is what they share. The general prompts are those of the quickstart and HumanEval's, asked for in
a chat; the heads were trained on none of them. All sizes are chosen for half an hour on two cores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from peagle_bench.workloads import load_workload
from peagle_sm.aws.files import write_file
from scripts.bench.comparison import OWN_PROMPTS, as_chat

TRAFFIC, CODE = 160, 60  #: prompts of the shop, and of HumanEval
TOKENS = 96  #: of an answer; most answers in the form have 80 to 95
PROVED_TOKENS = 64  #: of an answer in the proof, in which three engines take turns
STEPS = 90  #: of the training, if the two epochs are not over earlier
#: For each part: what may be wrong with it.
PARTS: Mapping[str, Sequence[str]] = {
    "front brake": ("squeaks", "feels soft", "rubs on the wheel", "does not stop the bike"),
    "rear brake": ("squeaks", "feels soft", "rubs on the wheel", "does not stop the bike"),
    "chain": ("jumps off", "makes a noise", "is rusty", "feels loose"),
    "front tyre": ("loses air", "has a cut", "is worn out", "slips on wet roads"),
    "rear tyre": ("loses air", "has a cut", "is worn out", "slips on wet roads"),
    "saddle": ("moves to one side", "sinks down", "is too hard", "makes a noise"),
    "handlebar": ("turns in the clamp", "is not straight", "shakes", "is too low"),
    "front light": ("does not shine", "flickers", "is too weak", "fell off"),
    "rear light": ("does not shine", "flickers", "stays on", "fell off"),
    "battery": ("is empty after an hour", "does not charge", "gets hot", "does not click into place"),
    "motor": ("stops on hills", "makes a noise", "starts too late", "shows an error"),
    "gear shift": ("jumps", "is stuck", "does not reach the last gear", "feels heavy"),
    "pedal": ("clicks", "is loose", "turns heavily", "is bent"),
    "front wheel": ("wobbles", "has a broken spoke", "rubs on the frame", "makes a noise"),
    "rear wheel": ("wobbles", "has a broken spoke", "rubs on the frame", "makes a noise"),
    "bell": ("does not ring", "is loose", "rings on its own", "is too quiet"),
    "lock": ("does not open", "is stuck", "is rusty", "has lost its key"),
    "display": ("stays dark", "shows the wrong speed", "is wet inside", "switches itself off"),
}
OCCASIONS = ("after rain", "since this morning", "when I go uphill", "on my new bike")
QUESTIONS = (
    "My {part} {symptom} {occasion}. What can I do?",
    "The {part} {symptom} {occasion}. How do I fix this?",
    "Hello, my {part} {symptom} {occasion}. Can you help?",
)
_FORM = """\
**Topic:** {topic}
**Likely cause:** {cause}
**What to do:**
1. {steps[0]}
2. {steps[1]}
3. {steps[2]}
**Time:** {minutes} minutes
**Workshop needed:** no

Ride safely! Your Harbour Bikes team"""
EXAMPLES = (
    (
        "The basket on my bike rattles.",
        _FORM.format(
            topic="basket",
            cause="a screw of the holder is loose.",
            steps=("Take everything out.", "Tighten both screws with a 4 mm key.", "Shake it to test it."),
            minutes=5,
        ),
    ),
    (
        "The mudguard touches my shoe.",
        _FORM.format(
            topic="mudguard",
            cause="its stay is bent.",
            steps=("Look where it is bent.", "Bend the stay back by hand.", "Turn the wheel to test it."),
            minutes=10,
        ),
    ),
)
SYSTEM = (
    "You are the support assistant of Harbour Bikes. Answer in the form of these examples.\n\n"
    + "\n\n".join(f"Customer: {question}\n\nAnswer:\n{answer}" for question, answer in EXAMPLES)
)
ENDPOINT_NAME = "learn-demo"
ENDPOINT = f"""\
# The endpoint that serves: SmolLM2-135M-Instruct with the head that ships with the project.
name: {ENDPOINT_NAME}
model: smollm2-135m-instruct
speculation:
  mode: p-eagle
serving:
  max_model_len: 1024         # the proof also measures prompts up to this length
lifecycle:
  max_lifetime_hours: 4
"""
LEARN = """\
# What `peagle-sm learn run` does: data, training, proof, promotion.
name: house-style
target: {{model: smollm2-135m-instruct}}
endpoint: {endpoint}
bucket: s3://peagle-sm-local-us-east-1/learn   # the local SageMaker has it
data:
  prompts: [traffic.jsonl]
  general: general.jsonl
  general_trained: 0.4        # of these a share is trained on, too, so that the head forgets less
  held_out: 0.25
  max_tokens: {tokens}
  concurrency: 8
train:
  max_hours: 1
  sequence_length: 512        # a prompt with its answer; what is longer is cut
  micro_batch_size: 1
  grad_accumulation_steps: 4
  epochs: 2
  max_steps: {steps}
  learning_rate: 0.0005
  checkpoint_every_steps: 15
  log_every_steps: 5
prove:
  max_tokens: {proved_tokens}
  most_general_loss: 0.05     # these few short answers cannot show less; the default is 0.02
"""


def shifted() -> Iterator[dict[str, Any]]:
    """Yield each part with each of its symptoms and occasions, in the house's form."""
    for (part, symptoms), occasion in product(PARTS.items(), OCCASIONS):
        for symptom in symptoms:
            name = f"{part}/{symptom}/{occasion}"
            question = QUESTIONS[_hash(name)[0] % len(QUESTIONS)]
            content = question.format(part=part, symptom=symptom, occasion=occasion)
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
            yield {"id": name, "messages": messages}


def general() -> Iterator[dict[str, Any]]:
    """Yield the quickstart's chat and JSON prompts, and functions of HumanEval."""
    code = [as_chat(item) for item in load_workload("humaneval", count=CODE).items]
    for item in (*load_workload(str(OWN_PROMPTS)).items, *code):
        yield {"id": item.prompt_id, "messages": item.body["messages"]}


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def lines_of(prompts: Iterable[Mapping[str, Any]], most: int | None) -> str:
    """Return prompts as OpenAI bodies, one a line, in an order by hash."""
    drawn = sorted(prompts, key=lambda prompt: _hash(prompt["id"]))[:most]
    return "".join(json.dumps({**each, "max_tokens": TOKENS, "temperature": 0}) + "\n" for each in drawn)


def learn_yaml(steps: int = STEPS) -> str:
    """Return learn.yaml."""
    return LEARN.format(endpoint=ENDPOINT_NAME, tokens=TOKENS, proved_tokens=PROVED_TOKENS, steps=steps)


def files(*, most_prompts: int | None = None, steps: int = STEPS) -> dict[str, str]:
    """Return the text of each file by its name; ``most_prompts`` of each kind, None: all."""
    return {
        "traffic.jsonl": lines_of(shifted(), most_prompts or TRAFFIC),
        "general.jsonl": lines_of(general(), most_prompts),
        "peagle.yaml": ENDPOINT,
        "learn.yaml": learn_yaml(steps),
    }


def write_missing(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write the files that the folder lacks, and return them: what a user has edited stays."""
    missing = [folder / name for name in texts if not (folder / name).exists()]
    for path in missing:
        write_file(path, texts[path.name], parents=True)
    return missing
