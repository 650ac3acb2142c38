from __future__ import annotations

from peagle_bench.tune.limits import MAX_K, largest_k
from peagle_sm.core.spec.endpoint_spec import EndpointSpec


def test_a_head_that_drafts_in_one_pass_limits_the_largest_k_to_its_training() -> None:
    smollm2 = EndpointSpec(name="smollm2", model="smollm2-135m-instruct")
    assert largest_k(smollm2, ("p-eagle",)) == 8
    assert largest_k(smollm2, ("ngram", "p-eagle")) == 8
    assert largest_k(smollm2, ("eagle3", "ngram")) == MAX_K, "these feed on their own drafts, or have no head"
