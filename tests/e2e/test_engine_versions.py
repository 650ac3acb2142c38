"""The whole cycle on every engine of the local SageMaker, chosen by the image of a spec.

An endpoint without speculation and one with P-EAGLE come up for each version of vLLM, on the shipped weights.
Where its environment is missing, the first start builds it. Only answers are asserted, no speed. EAGLE-3 is
in test_quickstart.py: only the default version has it.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from sagemaker_local.engine.env import engine_locks
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.tiny_code import spec_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

MODES: tuple[Mode, ...] = ("none", "p-eagle")
PROMPTS = [f"def {name}(values):\n    " for name in ("total", "median", "merge", "parse", "split", "rotate")]
LARGEST = 9
DRAFTS, DRAFT_TOKENS = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"


@dataclass
class Lab:
    """The endpoints of one version, each named after its mode."""

    version: str
    stack: LocalStack

    @property
    def is_default(self) -> bool:
        return self.version == next(iter(engine_locks()))

    @property
    def runtime(self) -> Any:
        return self.stack.session.client("sagemaker-runtime")

    @property
    def port(self) -> str:
        return (self.stack.session.local_url or "").rpartition(":")[2]

    def engine(self, mode: Mode) -> dict[str, Any]:
        (row,) = [row for row in self.stack.engines() if row["endpoint"] == name_of(mode)]
        return row

    def ask(self, mode: Mode, prompt: str, **more: Any) -> dict[str, Any]:
        answer = self.runtime.invoke_endpoint(
            EndpointName=name_of(mode), ContentType="application/json", Body=body(prompt, **more)
        )
        completion: dict[str, Any] = json.loads(answer["Body"].read())
        return completion

    def page(self, mode: Mode, path: str) -> str:
        """What the engine itself answers, past the data plane."""
        with urllib.request.urlopen(self.engine(mode)["url"] + path, timeout=30) as response:
            text: str = response.read().decode()
        return text

    def counts(self, mode: Mode) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name, value in re.findall(
            r"^(vllm:\w+)\{.*?\} (\S+)$", self.page(mode, "/metrics"), re.MULTILINE
        ):
            counts[name] += int(float(value)) if name in (DRAFTS, DRAFT_TOKENS) else 0
        return counts


def name_of(mode: Mode) -> str:
    return f"tiny-{mode}"


def body(prompt: str, **more: Any) -> bytes:
    return json.dumps({"prompt": prompt, "max_tokens": 32, "temperature": 0, **more}).encode()


def spec_for(mode: Mode, version: str) -> EndpointSpec:
    """The mode's spec on that engine; P-EAGLE's takes K from each request."""
    fields = spec_of(mode).model_dump(exclude_unset=True)
    fields |= {"name": name_of(mode), "image": f"vllm-cpu:{version}"}
    if mode == "p-eagle":
        fields["serving"] = {"env": {"PEAGLE_SM_RUNTIME_K": "1"}}
        fields["speculation"] |= {"num_speculative_tokens": LARGEST}
    return EndpointSpec(**fields)


@pytest.fixture(scope="module", params=engine_locks())
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        lab = Lab(request.param, stack)
        stack.deploy({mode: spec_for(mode, lab.version) for mode in MODES})
        yield lab
        assert stack.delete_all() == []
    assert stack.left == []


def test_the_image_chose_the_engine(lab: Lab) -> None:
    for mode in MODES:
        assert json.loads(lab.page(mode, "/version"))["version"].partition("+")[0] == lab.version
        assert lab.engine(mode)["engine_version"] == lab.version


def test_every_mode_gives_the_targets_greedy_answers_and_each_head_drafts(lab: Lab) -> None:
    answers: dict[str, list[list[int]]] = {}
    for mode in MODES:
        before = lab.counts(mode)
        choices = [lab.ask(mode, prompt, return_token_ids=True)["choices"][0] for prompt in PROMPTS]
        answers[mode] = [choice["token_ids"] for choice in choices]
        assert answers[mode] == answers["none"], mode
        tokens, drafts = sum(map(len, answers[mode])), lab.counts(mode)[DRAFTS] - before[DRAFTS]
        assert 0 < drafts < tokens / 1.5 if mode != "none" else drafts == 0, mode
    assert all(len(tokens) > 1 for tokens in answers["none"])


def test_a_stream_is_the_whole_answer_in_pieces(lab: Lab) -> None:
    answer = lab.runtime.invoke_endpoint_with_response_stream(
        EndpointName=name_of("p-eagle"), ContentType="application/json", Body=body(PROMPTS[0], stream=True)
    )
    text = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"]).decode()
    data = [line.removeprefix("data: ") for line in text.splitlines() if line]
    pieces = [choice["text"] for event in data[:-1] for choice in json.loads(event)["choices"]]
    assert data[-1] == "[DONE]"
    assert len(pieces) > 1
    assert "".join(pieces) == lab.ask("p-eagle", PROMPTS[0])["choices"][0]["text"]


@pytest.mark.parametrize("k", [0, 1, 3, LARGEST])
def test_a_request_chooses_its_k(lab: Lab, k: int) -> None:
    before = lab.counts("p-eagle")
    answer = lab.ask("p-eagle", PROMPTS[0], vllm_xargs={"num_speculative_tokens": k}, ignore_eos=True)
    after = lab.counts("p-eagle")
    drafts, tokens = (after[name] - before[name] for name in (DRAFTS, DRAFT_TOKENS))
    assert answer["choices"][0]["text"] == lab.ask("none", PROMPTS[0], ignore_eos=True)["choices"][0]["text"]
    assert (drafts > 0) == (k > 0)
    # The last steps of an answer draft no more than it has left.
    assert k * (drafts - LARGEST) <= tokens <= k * drafts


def test_a_k_above_the_engines_own_is_refused_and_it_goes_on(lab: Lab) -> None:
    with pytest.raises(ClientError) as caught:
        lab.ask("p-eagle", PROMPTS[0], vllm_xargs={"num_speculative_tokens": LARGEST + 1})
    assert "allowed: 0 to 9" in str(caught.value)
    assert lab.ask("p-eagle", PROMPTS[0])["choices"][0]["text"]


def test_verify_finds_the_answers_to_be_the_targets_own(lab: Lab) -> None:
    if lab.is_default:
        pytest.skip("tests/e2e/test_measuring.py verifies the default engine")
    options = ["--checks", "greedy,sampled", "--quick", "--prompts", "8", "--max-tokens", "16"]
    where = ["--local-port", lab.port, "--format", "json"]
    result = run("verify", name_of("p-eagle"), "--baseline", name_of("none"), *options, *where)
    assert result.exit_code == 0, result.output
    passed = {check["name"]: check["passed"] for check in json.loads(result.stdout)["checks"]}
    assert passed == {"greedy": True, "sampled": True}
