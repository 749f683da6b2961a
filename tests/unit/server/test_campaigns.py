"""Reports of campaigns that are run in pieces add up."""

from __future__ import annotations

from tests.support.server.campaigns import Row, add, add_up, read


def test_pieces_of_a_campaign_add_up_and_no_seed_counts_twice(tmp_path):
    path = tmp_path / "build" / "rows.jsonl"
    for row in (
        Row("chaos", 1, 1, {"kill": 2, "results": 30}, {"kill": [1.0, 3.0]}),
        Row("chaos", 2, 3, {"kill": 1, "results": 12}, {"kill": [2.0]}),
        Row("chaos", 3, 3, {"kill": 100}, {"kill": [99.0]}),
        Row("faults", 1, 100, {"crash": 7}),
    ):
        add(path, row)
    assert add_up(read(path)) == {
        "chaos": {"seeds": 3, "kill": 3, "results": 42, "kill s": {"median": 2.0, "longest": 3.0}},
        "faults": {"seeds": 100, "crash": 7},
    }
    assert add_up(read(tmp_path / "none")) == {}
