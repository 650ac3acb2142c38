"""The plan's look at the beginnings of prompt files: it refuses no data that the jobs accept."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from peagle_learn.core.processing.lines import GENERAL, PROMPTS
from peagle_learn.core.prompts import TargetTexts
from peagle_learn.core.spec import LearnSpec
from peagle_learn.processing.beginnings import PromptFile, check_beginnings
from peagle_sm.aws.session.session import Session
from peagle_sm.core.words import Finding
from tests.learn.processing.test_job import jsonl

TARGET = TargetTexts(True, frozenset({"<|endoftext|>"}), 2048)
SPEC = LearnSpec(
    name="team", target={"model": "tiny-code"}, bucket="s3://b/x", data={"prompts": ["s3://b/p"]}
)


@dataclass
class Stored:
    """A session, its S3, and the one file of a set there; None may not be read."""

    content: dict[str, bytes | None]
    local_url: None = None

    def client(self, _: str) -> Stored:
        return self

    def get_object(self, **asked: str) -> dict[str, Any]:
        found = self.content[asked["Key"]]
        if found is None:
            said = {"Error": {"Code": "AccessDenied", "Message": "no s3:GetObject"}}
            raise ClientError(said, "GetObject")  # type: ignore[arg-type]
        first, last = asked["Range"].removeprefix("bytes=").split("-")
        return {"Body": io.BytesIO(found[int(first) : int(last) + 1])}


def check(**content: bytes | None) -> tuple[tuple[Finding, ...], str]:
    files = [PromptFile(of, "b", of, len(found or b"some")) for of, found in content.items()]
    return check_beginnings(cast("Session", Stored(content)), files, SPEC, TARGET)


def long_prompts(count: int, quoting: int) -> bytes:
    quotes = ["<|eot_id|> " * (number < quoting) for number in range(count)]
    return jsonl([{"prompt": f"{quote}{number} " + "word " * 4000} for number, quote in enumerate(quotes)])


def test_who_may_not_read_the_prompts_still_gets_a_plan() -> None:
    found, told = check(**{PROMPTS: None})
    assert found == ()
    assert told.startswith("not checked, since you may not read the prompts: ")
    assert "GetObject" in told


def test_a_warning_stays_where_the_general_set_may_not_be_read() -> None:
    found, told = check(**{PROMPTS: long_prompts(100, 2), GENERAL: None})
    assert [each.severity for each in found] == ["warning"]
    assert told.startswith("not checked")


def test_a_few_quotes_at_the_beginning_are_a_warning_where_more_follows() -> None:
    found, told = check(**{PROMPTS: long_prompts(100, 2)})
    assert "checked: 49 prompts" in told
    (warning,) = found
    assert (warning.severity, warning.check) == ("warning", "data")
    assert "data.prompts: 2 of the first 49 prompts contain <|eot_id|>" in warning.message
    assert "If more than 2% of all prompts do, the second job fails" in warning.message


@pytest.mark.parametrize(("quoting", "severity"), [(24, "warning"), (25, "error"), (0, "")])
def test_the_beginning_is_refused_above_half(quoting: int, severity: str) -> None:
    found, _ = check(**{PROMPTS: long_prompts(100, quoting)})
    assert [each.severity for each in found] == [severity] * bool(severity)


def test_of_whole_files_the_share_of_the_job_counts() -> None:
    found, told = check(**{PROMPTS: long_prompts(40, 2)})
    assert [each.severity for each in found] == ["error"]
    assert told == ""
