"""Where the weights, caches and state lie."""

from pathlib import Path

from sagemaker_local.paths import PACKAGE, weights_dir


def test_the_shipped_weights_unless_others_are_named(tmp_path: Path) -> None:
    assert weights_dir({}) == PACKAGE / "weights"
    assert weights_dir({"PEAGLE_SM_WEIGHTS": ""}) == PACKAGE / "weights"
    assert weights_dir({"PEAGLE_SM_WEIGHTS": str(tmp_path)}) == tmp_path.resolve()
