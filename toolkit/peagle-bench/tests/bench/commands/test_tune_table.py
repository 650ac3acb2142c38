"""What `tune --loads` prints and writes into the spec of a table of K."""

from __future__ import annotations

from peagle_bench.commands.tune import render_table_of_k
from peagle_bench.results.records import Interval, Load, TableCheck, TableRecord
from peagle_bench.tune.job import table_evidence

REFUSED = TableRecord(
    "p-eagle",
    ((1, 3, 7), (4, 1024, 2)),
    5,
    False,
    "the table's own endpoint is slower",
    (TableCheck(Load("closed", concurrency=1), Interval(0.9, 0.88, 0.92), "slower", 48, 48),),
)


def test_a_table_that_was_refused_is_shown_with_the_k_that_is_written() -> None:
    lines = render_table_of_k(REFUSED).splitlines()
    assert lines[0] == "p-eagle, K by requests in flight: 7 (1 to 3), 2 (4 and more)"
    assert lines[1] == "NOT accepted, K=5 at every load: the table's own endpoint is slower"
    assert any("0.900" in line and "[0.880, 0.920]" in line and "48 of 48" in line for line in lines)
    assert table_evidence(REFUSED)[0] == "K by load: 7 (1 to 3), 2 (4 and more); not written"


def test_one_k_for_every_load_is_not_called_a_refused_table() -> None:
    """A run on the local engine printed `5 (1 and more)`, `NOT accepted` and K=3 for the same table."""
    one_k = TableRecord("p-eagle", ((1, 1024, 5),), 3, False, "no table of K is needed: K=3 is written")
    assert render_table_of_k(one_k) == "p-eagle: no table of K is needed: K=3 is written"
    assert table_evidence(one_k) == ["no table of K is needed: K=3 is written"]
