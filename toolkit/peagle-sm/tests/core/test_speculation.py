from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from peagle_sm.core.plan.environment import SpeculativeConfig
from tests.core.strategies import k_tables

HEAD = "/opt/ml/additional-model-data-sources/eagle"


def test_p_eagle_is_eagle3_with_parallel_drafting() -> None:
    config = SpeculativeConfig(method="eagle3", model=HEAD, num_speculative_tokens=7, parallel_drafting=True)
    assert config.to_json() == (
        f'{{"method":"eagle3","model":"{HEAD}","num_speculative_tokens":7,"parallel_drafting":true}}'
    )


def test_jumpstarts_own_text_is_read() -> None:
    text = (
        '{"model": "/opt/ml/additional-model-data-sources/eagle", "method": "eagle3", '
        '"num_speculative_tokens": 3, "parallel_drafting": true}'
    )
    config = SpeculativeConfig.model_validate_json(text)
    assert (config.num_speculative_tokens, config.parallel_drafting) == (3, True)


@pytest.mark.parametrize(
    "text",
    [
        "{method:eagle3,model:/x}",
        "[1]",
        '{"method":"peagle","model":"x","num_speculative_tokens":3}',
        '{"method":"eagle3","model":"x","num_speculative_tokens":0}',
        '{"method":"eagle3","model":"x"}',
        '{"method":"eagle3","model":"x","num_speculative_tokens":"3"}',
        '{"method":"eagle3","model":"x","num_speculative_tokens":3,"k":1}',
        '{"method":"eagle3","model":"x","num_speculative_tokens":3,'
        '"num_speculative_tokens_per_batch_size":[[5,4,7]]}',
    ],
)
def test_what_vllm_would_refuse_is_refused_here(text: str) -> None:
    with pytest.raises(ValidationError):
        SpeculativeConfig.model_validate_json(text)


_CONFIGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "method": st.just("eagle3"),
        "model": st.text(min_size=1, max_size=30),
        "num_speculative_tokens": st.integers(1, 64),
    },
    optional={
        "parallel_drafting": st.just(False),
        "num_speculative_tokens_per_batch_size": k_tables(),
    },
)


@given(_CONFIGS)
def test_json_round_trip(data: dict[str, Any]) -> None:
    config = SpeculativeConfig(**data)
    assert SpeculativeConfig.model_validate_json(config.to_json()) == config
