"""The trainer's rules, which the image has without the toolkit, agree with what reads heads."""

from __future__ import annotations

from peagle_learn.core import rules
from peagle_sm.core.heads import layout


def test_trainer_and_toolkit_know_the_same_names_in_a_heads_config() -> None:
    assert rules.MASK_KEYS == layout.MASK_KEYS
    assert rules.HEAD_SIZES == layout.HEAD_SIZES
