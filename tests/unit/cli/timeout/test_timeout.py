"""`windfall timeout`: the JSON contract, files of every kind, and errors that say where and what."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.cli.timeout.command import timeout
from windfall.errors import BadInput
from windfall.timeouts.laws.numeric import EGEE_LIKE

FIVE = ["timeout_s", "expected_s", "no_timeout_s", "speedup", "kind"]


def run(*arguments):
    result = CliRunner().invoke(timeout, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def ask(*arguments):
    return json.loads(run(*arguments, "--json"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def refused(*arguments):
    with pytest.raises(BadInput) as caught:
        run(*arguments)
    return str(caught.value)


@pytest.fixture
def egee(tmp_path):
    rng = np.random.default_rng(5)
    lost = rng.random(2137) < 0.025
    values = np.where(lost, 10_000, EGEE_LIKE.ppf(rng.random(2137)))
    path = tmp_path / "egee.csv"
    rows = [f"{value:.3f},{int(cut)}" for value, cut in zip(values, lost, strict=True)]
    path.write_text("latency_s,still_waiting\n" + "\n".join(rows) + "\n")
    return path


LAWS = {
    "uniform": ["--a", 100, "--b", 300],
    "gaussian": ["--mu", 300, "--sigma", 100],
    "exponential": ["--rate", 0.01],
    "lognormal": ["--mu", 5, "--sigma", 1.2],
    "pareto": ["--a", 100, "--nu", 1.5],
    "weibull": ["--shape", 0.5, "--scale", 100],
    "blend": [],
    "scipy:gamma": ["--param", "a=2", "--param", "scale=50"],
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("rho", [0, 0.02])
def test_every_law_answers_the_five_fields_first(name, rho):
    answer = ask("law", name, *LAWS[name], "--rho", rho)
    assert list(answer)[:5] == FIVE
    assert answer["kind"] in ("finite", "any", "none", "zero")
    assert (answer["no_timeout_s"] is None) == (rho > 0)
    assert run("law", name, *LAWS[name], "--rho", rho)


def test_kinds_set_the_timeout_field():
    assert ask("law", "exponential", "--rate", 1)["timeout_s"] is None
    assert ask("law", "uniform", "--a", 1, "--b", 2)["timeout_s"] is None
    assert ask("law", "pareto", "--a", 100, "--nu", 1.5)["timeout_s"] == 0
    assert ask("law", "uniform", "--a", 1, "--b", 2, "--rho", 0.1)["timeout_s"] == 2


def test_run_time_and_cost_are_taken_into_account():
    plain = ask("law", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02)
    longer = ask("law", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02, "--run-s", 60)
    dearer = ask("law", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02, "--submit-cost-s", 60)
    assert longer["timeout_s"] == pytest.approx(dearer["timeout_s"] + 60)
    assert longer["expected_s"] > plain["expected_s"] + 60


def test_the_blend_without_parameters_is_like_egee():
    answer = ask("law", "blend")
    assert answer["timeout_s"] == pytest.approx(360, rel=0.05)
    assert answer["expected_s"] == pytest.approx(289, rel=0.02)
    assert answer["speedup"] == pytest.approx(1.36, rel=0.02)


def test_limits_and_quantiles_can_be_asked_for():
    limited = ask("law", "lognormal", "--mu", 5, "--sigma", 1.2, "--max-resubmissions", 2)
    assert len(limited["timeouts_s"]) == 3
    assert limited["timeouts_s"][-1] is None
    assert ask("law", "lognormal", "--mu", 5, "--sigma", 1.2, "--quantile", 0.95)["objective"] == "quantile 0.95"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["law", "unifrm"], "no law 'unifrm'"),
        (["law", "uniform", "--a", 1], "needs --b"),
        (["law", "uniform", "--a", 1, "--b", 2, "--mu", 3], "does not take --mu"),
        (["law", "uniform", "--a", 1, "--b", 2, "--rho", 1], "below 1"),
        (["law", "uniform", "--a", 1, "--b", 2, "--rho", "nan"], "below 1"),
        (["law", "lognormal", "--mu", "nan", "--sigma", 1], "not a finite"),
        (["law", "scipy:gamma", "--param", "a"], "NAME=NUMBER"),
        (["law", "scipy:gamma"], "NAME=VALUE"),
        (["law", "exponential", "--rate", 1, "--quantile", 1.5], "between 0 and 1"),
        (["law", "exponential", "--rate", 1, "--give-up-s", 1], "only makes sense"),
        (["strategy", "exponential", "--rate", 1], "price"),
        (["curve", "exponential", "--rate", 1, "--from-s", 5, "--to-s", 2], "upwards"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(arguments, message):
    assert message in refused(*arguments)


def test_fit_learns_from_a_file_with_censored_jobs(egee, tmp_path):
    answer = ask("fit", egee, "--censored", "still_waiting", "--plot", tmp_path / "fit.png")
    assert list(answer)[:5] == FIVE
    assert answer["timeout_s"] == pytest.approx(358, rel=0.15)
    assert answer["expected_s"] == pytest.approx(300, rel=0.05)
    assert answer["rho_interval"][0] < 0.025 < answer["rho_interval"][1]
    assert answer["law"]["name"] == "blend"
    assert answer["warnings"][0]["code"] == "short-follow-up"
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    assert "lost (rho)" in run("fit", egee, "--censored", "still_waiting")


def test_a_cut_off_makes_outliers_of_what_is_later(egee):
    answer = ask("fit", egee, "--column", "latency_s", "--outlier-after-s", 9_999)
    assert answer["censored"] > 0
    assert answer["no_timeout_s"] is None


def test_plain_numbers_gzip_and_a_byte_order_mark_are_read(tmp_path):
    plain, packed = tmp_path / "plain.txt", tmp_path / "packed.csv.gz"
    text = "\n".join(str(value) for value in np.random.default_rng(1).lognormal(5, 1.2, 300))
    plain.write_text(text)
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbflatency\n" + text.encode()))
    assert ask("fit", plain)["timeout_s"] == ask("fit", packed)["timeout_s"]


def swf(rows):
    return "; a log\n" + "\n".join(" ".join(str(cell) for cell in row) for row in rows) + "\n"


def swf_row(number, submit, wait, run_s=10, status=1):
    return [number, submit, wait, run_s, 1, -1, -1, 1, -1, -1, status, 1, 1, -1, 1, 1, -1, -1]


def test_swf_waits_are_read_and_cancelled_jobs_are_censored(tmp_path):
    rng = np.random.default_rng(2)
    rows = [swf_row(i, 10 * i, int(wait)) for i, wait in enumerate(rng.lognormal(5, 1, 400))]
    rows += [swf_row(500 + i, 4000 + i, 2000, run_s=0, status=5) for i in range(20)]
    rows += [swf_row(600, 5000, -1)]
    path = tmp_path / "log.swf"
    path.write_text(swf(rows))
    answer = ask("fit", path)
    assert (answer["came_back"], answer["censored"], answer["skipped"]) == (400, 20, 1)
    assert answer["column"] == "wait"


def test_a_queue_log_is_replayed_and_warned_about(tmp_path):
    rows = [swf_row(i, 100 * i, 0 if (i // 50) % 2 else 5000 - 100 * (i % 50)) for i in range(1000)]
    path = tmp_path / "queue.swf"
    path.write_text(swf(rows))
    answer = ask("fit", path)
    assert {"mass-at-zero", "dependent"} <= {warning["code"] for warning in answer["warnings"]}
    assert answer["basis"] == "replay"
    assert answer["groups"]
    assert answer["formula"]["kind"] == "zero"
    assert answer["kind"] == "none"


BAD_FILES = {
    "": "is empty",
    "5\n": "1 completed observation cannot",
    "5\nnan\n": "line 2: the latency is 'nan'",
    "5\ninf\n": "line 2: the latency is 'inf'",
    "latency\n5\n-3\n": "line 3: 'latency' is negative",
    "latency\nabc\n": "line 2: 'latency' is 'abc', not a number",
    "latency\n": "nothing below it",
    "x,y\n5,6\n7,8\n": "which column",
    "latency,c\n5\n": "line 2: 1 fields",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_is_refused_by_line_and_field(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    message = refused("fit", path)
    assert BAD_FILES[text] in message
    assert "bad.csv" in message


def test_censoring_columns_are_checked(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("latency,waiting\n5,1\n6,yes\n")
    assert "all 2 observations are censored" in refused("fit", path, "--censored", "waiting")
    assert "did you mean 'waiting'" in refused("fit", path, "--censored", "waitin")
    path.write_text("latency,waiting\n5,maybe\n")
    assert "line 2: 'maybe'" in refused("fit", path, "--censored", "waiting")


def test_files_that_are_none_are_named(tmp_path):
    assert "no file" in refused("fit", tmp_path / "missing.csv")
    assert "directory" in refused("fit", tmp_path)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "not text" in refused("fit", tmp_path / "x.csv")
    log = tmp_path / "nowaits.swf"
    log.write_text(swf([swf_row(1, 0, -1)]))
    assert "none of its 1 jobs has a wait time" in refused("fit", log)


def test_a_curve_has_its_points_and_its_best(tmp_path):
    answer = ask("curve", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02, "--points", 20)
    assert len(answer["points"]) == 20
    assert min(point["expected_s"] for point in answer["points"]) >= answer["expected_s"]
    assert run("curve", "pareto", *LAWS["pareto"], "--submit-cost-s", 5, "--plot", tmp_path / "c.png")
    assert (tmp_path / "c.png").exists()


def test_strategies_are_ranked_by_score():
    answer = ask("strategy", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02, "--submit-cost-s", 30)
    assert answer["best"] == answer["strategies"][0]
    assert "score" in run("strategy", "lognormal", "--mu", 5, "--sigma", 1.2, "--rho", 0.02, "--submit-cost-s", 30)


def test_empty_rows_that_were_left_out_are_counted(tmp_path):
    path = tmp_path / "holes.csv"
    rows = [f"{value}" for value in range(1, 101)]
    path.write_text("latency_s\n" + "\n".join(rows[:50]) + "\n\n\n" + "\n".join(rows[50:]) + "\n")
    assert ask("fit", path)["skipped"] == 2
    assert "2 rows without a latency" in run("fit", path)


@pytest.mark.parametrize("name", ["p.xyz", "p"])
def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_is_computed(tmp_path, name):
    said = refused("fit", tmp_path / "not-even-read.csv", "--plot", tmp_path / name)
    assert ".png" in said and ".svg" in said


def test_a_packed_file_that_is_damaged_is_refused(tmp_path):
    packed = bytearray(gzip.compress("".join(f"{n}.5\n" for n in range(200)).encode()))
    packed[20] ^= 0xFF
    (tmp_path / "latencies.csv.gz").write_bytes(packed)
    with pytest.raises(BadInput, match="cannot be read"):
        run("fit", tmp_path / "latencies.csv.gz")


@pytest.mark.parametrize("text", ["1e308", "2e12"])
def test_a_latency_whose_square_is_infinite_is_refused(tmp_path, text):
    (tmp_path / "latencies.csv").write_text(f"1\n{text}\n3\n4\n")
    with pytest.raises(BadInput, match="line 2"):
        run("fit", tmp_path / "latencies.csv")


def test_a_column_named_by_a_digit_that_is_no_number_is_not_there(tmp_path):
    (tmp_path / "latencies.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(BadInput, match="no column"):
        run("fit", tmp_path / "latencies.csv", "--column", "\N{SUPERSCRIPT TWO}")
