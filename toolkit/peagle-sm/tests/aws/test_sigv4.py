"""Our signatures are botocore's."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.session.signing import sign

_WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)


@given(
    name=st.text("abcXYZ019-_~ ä", min_size=1, max_size=20),  # no dots: botocore resolves a path of them
    body=st.binary(max_size=200),
    secret=_WORD,
    token=st.none() | _WORD,
    component=st.none() | st.sampled_from(["one", " two  blanks "]),
)
def test_it_is_the_signature_of_botocore(
    name: str, body: bytes, secret: str, token: str | None, component: str | None
) -> None:
    path = f"/endpoints/{quote(name, safe='')}/invocations-response-stream"
    headers = {"content-type": "application/json"}
    if component is not None:
        headers["x-amzn-sagemaker-inference-component"] = component
    theirs = AWSRequest(
        "POST", f"https://runtime.sagemaker.eu-west-1.amazonaws.com{path}", dict(headers), body
    )
    SigV4Auth(Credentials("AKID", secret, token), "sagemaker", "eu-west-1").add_auth(theirs)
    at = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%S%z").timestamp()
    url = f"https://runtime.sagemaker.eu-west-1.amazonaws.com{path}"
    ours = sign(url, headers, body, Credentials("AKID", secret, token), "eu-west-1", lambda: at)
    assert ours["authorization"] == theirs.headers["Authorization"]
    assert ours.get("x-amz-security-token") == theirs.headers.get("X-Amz-Security-Token")
