"""Published series are read, counted and refused with the place of what is wrong."""

from __future__ import annotations

import gzip
import json

import pytest

from windfall.cli.market.files import read_series
from windfall.errors import BadInput
from windfall.planning.counts import CLASSES, DAY_H

PRICES = "timestamp,availability_zone,instance_type,usd_per_hour\n"


def ticks(tmp_path, data, gap_s=600.0):
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data}))
    return path


def text(tmp_path, content, name="series.txt"):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_availability_is_counted_as_spells_with_and_without_capacity(tmp_path):
    read = read_series(ticks(tmp_path, [1, 1, 1, 0, 0, 0, 1, 1, 0, 1]), since_t=0.0)
    assert read.what == "availability"
    assert read.published.hours == pytest.approx(1.0) and read.published.ends == 2.0
    away = [cell for cell in read.published.cells if cell[0] >= CLASSES * DAY_H]
    assert sum(cell[1] for cell in away) == 2.0 and sum(cell[2] for cell in away) == pytest.approx(4 / 6)


def test_machines_of_one_series_share_one_weight(tmp_path):
    """Four machines that go together are one observation, not four."""
    one, four = (read_series(ticks(tmp_path, [n, n, 0, 0, n])).published for n in (1, 4))
    assert four.ends == pytest.approx(one.ends) and four.hours == pytest.approx(one.hours)


def test_a_series_without_times_says_nothing_of_hours_of_the_day(tmp_path):
    path = ticks(tmp_path, [1, 1, 0, 1])
    by_hour = dict.fromkeys(range(DAY_H), 0.0)
    for place, ends, _ in read_series(path).published.cells:
        by_hour[place % DAY_H] += ends
    assert len({round(ends, 9) for ends in by_hour.values()}) == 1
    timed = read_series(path, since_t=5 * 3600.0).published.cells
    assert {place % DAY_H for place, _, _ in timed} == {5}


def test_a_long_series_counts_for_200_hours(tmp_path):
    published = read_series(ticks(tmp_path, [1] * 5 + [0] + [1] * 5994, gap_s=600.0)).published
    assert published.hours == pytest.approx(5999 / 6)
    assert sum(hours for place, _, hours in published.cells if place < CLASSES * DAY_H) == pytest.approx(200.0)
    assert sum(ends for place, ends, _ in published.cells if place < CLASSES * DAY_H) == pytest.approx(1200 / 5999)


def test_machines_that_come_and_go_are_lives_of_machines(tmp_path):
    path = text(tmp_path, "0,add,a\n0,add,b\n3600000,remove,a\n7200000,add,c\n")
    read = read_series(path)
    # `a` lived an hour, `b` is there still after two, `c` has just come; two were there at most.
    assert read.what == "machines"
    assert read.published.hours == pytest.approx(3 / 2) and read.published.ends == pytest.approx(1 / 2)


def test_lives_end_by_a_reclaim(tmp_path):
    read = read_series(text(tmp_path, "0.5\t0.0\n1.5\t0.5\n"))
    assert (read.what, read.published.hours, read.published.ends) == ("lives", pytest.approx(2.0), pytest.approx(2.0))


def test_prices_of_one_of_several_types_hold_until_the_next(tmp_path):
    rows = "2024-03-01T00:00:00Z,a,m,0.1\n2024-03-01T03:00:00Z,b,m,9\n2024-03-01T01:00:00Z,a,m,0.3\n"
    rows += "2024-03-01T04:00:00Z,a,m,0.3\n"
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(gzip.compress((PRICES + rows).encode()))
    prices = read_series(path, "a/m").published.prices
    assert prices is not None and prices.held_s == 4 * 3600.0
    assert prices.sum_usd / prices.held_s == pytest.approx((0.1 + 3 * 0.3) / 4)
    assert (prices.low_usd, prices.high_usd, prices.changes) == (0.1, 0.3, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("{", "truncated"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, -2]}', "data[1] is -2"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1, 1]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1]}', "1 ticks"),
        ("0,add,a\n5,remove,b\n", ":2: 'remove' of b, which is not there"),
        ("0,add,a\n5,add,a\n", ":2: 'add' of a, which is there already"),
        ("9,add,a\n5,remove,a\n", ":2: the time goes back"),
        ("0,add,a\nx,remove,a\n", ":2: TIME_MS is 'x'"),
        ("0,add,a\n1,remove\n", ":2: 2 cells, not 3"),
        ("1.0 0.5\nnan 0.7\n", ":2: LIFE_IN_HOURS is 'nan'"),
        ("timestamp,usd_per_hour\nnow,1\n", ":2: timestamp is 'now'"),
        ("timestamp,usd_per_hour\n2024-03-01,free\n", ":2: usd_per_hour is 'free'"),
        ("timestamp,usd_per_hour\n2024-03-01,1\n", "1 price"),
        ("when,usd_per_hour\n", ":1: there is no column timestamp"),
        (PRICES + "2024-03-01,a,m,1\n", "several zones and types"),
        ("2021-12-10, 13:07:45, 80\n", ": machines at 1 time"),
        ("2021-12-10; 13:07:45; 80\n", ":1: '2021-12-10; 13:07:45; 80' begins no series"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_to_do(tmp_path, content, said):
    with pytest.raises(BadInput) as refused:
        read_series(text(tmp_path, content))
    assert said in refused.value.message and refused.value.hint


def test_binary_files_and_missing_ones_are_refused(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_series(path)
    with pytest.raises(BadInput, match="No such file"):
        read_series(tmp_path / "none.json")
    (tmp_path / "x.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="gzip"):
        read_series(tmp_path / "x.gz")


def test_machines_that_were_counted_are_there_until_the_next_line(tmp_path):
    """Two machines for an hour, one for half an hour, two again when the series ends."""
    lines = "2021-12-10, 13:00:00, 2\n2021-12-10, 14:00:00, 1\n2021-12-10, 14:30:00, 2\n2021-12-10, 15:00:00, 2\n"
    read = read_series(text(tmp_path, lines))
    assert read.what == "machines"
    assert read.published.hours == pytest.approx((2.0 + 1.5) / 2) and read.published.ends == pytest.approx(1 / 2)
    by_hour = {place % DAY_H for place, ends, _ in read.published.cells if ends}
    assert len(by_hour) == DAY_H
    timed = read_series(text(tmp_path, lines), since_t=5 * 3600.0).published.cells
    assert {place % DAY_H for place, _, _ in timed} <= {5, 6}


def test_logs_of_counts_that_were_put_together_are_read_in_order_of_time(tmp_path):
    lines = ["2021-12-10, 13:00:00, 2", "2021-12-10, 14:00:00, 1", "2021-12-10, 14:30:00, 2", "2021-12-10, 15:00:00, 2"]
    ordered = read_series(text(tmp_path, "\n".join(lines), "a.txt")).published
    mixed = [lines[2], lines[3], "2021-12-10, 14:00:00, 7", lines[0], lines[1]]
    assert read_series(text(tmp_path, "\n".join(mixed), "b.txt")).published == ordered


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    rows = "timestamp,usd_per_hour\n2024-03-01,0.1\n2024-03-02,0.2\n"
    marked = text(tmp_path, f"\ufeff{rows}", "marked.csv")
    assert read_series(marked).published.prices == read_series(text(tmp_path, rows, "plain.csv")).published.prices


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"timestamp,usd_per_hour\n2024-01-01,{'1' * 200_000}\n", ":2: "),
        ("timestamp,usd_per_hour_x\n2024-01-01,1\n", ":1: there is no column usd_per_hour"),
        ("timestamp,usd_per_hour\r2024-01-01,1\rx\n", ":1: new-line character"),
        ("timestamp,usd_per_hour\n2024-01-01,1\n2024-01-01,2\n", ": all its prices are of one time"),
        ("timestamp,usd_per_hour\n0001-01-01,1\n2024-01-01,2\n", ": its prices span more than 300 years"),
        ("timestamp,usd_per_hour\n2024-01-01,1\n2999-01-01,2\n", ":3: timestamp 2999-01-01 is in the future"),
        ("timestamp,usd_per_hour\n2024-01-01,1\n", ": 1 price"),
        (f"{PRICES}2024-01-01,a,m,1\n2024-01-02,a\n", ":3: 2 cells, not 4"),
        (f"{PRICES}2024-01-01,a,m,1,9\n", ":2: 5 cells, not 4"),
        ("0.5 0.1\n0 0.2\n", ":2: LIFE_IN_HOURS is '0'"),
        ("2021-12-10, 13:00:00, 2\n2021-12-10, 25:00:00, 2\n", ":2: timestamp is '2021-12-10T25:00:00'"),
        ("2021-12-10, 13:00:00, 2\n2021-12-10, 14:00:00, -2\n", ":2: MACHINES is '-2'"),
        ("2021-12-10, 13:00:00, 2\n2021-12-10, 13:00:00, 3\n", ": machines at 1 time"),
    ],
)  # fmt: skip
def test_what_is_odd_is_named_by_file_and_line(tmp_path, content, said):
    path = text(tmp_path, content)
    with pytest.raises(BadInput) as refused:
        read_series(path, "a/m" if content.startswith(PRICES) else "")
    assert str(refused.value).startswith(f"{path}{said}")
    assert refused.value.hint
