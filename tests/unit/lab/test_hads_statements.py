"""What `windfall lab hads` says of each statement of the paper."""

from __future__ import annotations

from windfall.lab.hads.statements import STATEMENTS, listed, statements
from windfall.lab.hads.world import PAPER_10, PAPER_11, PAPER_FIGURE_4_S


def as_printed() -> dict:
    """A summary in which everything came out as the paper prints it."""
    base, cells, shares = [], [], []
    for job, (machines, makespan_s, spot_usd, on_demand_usd) in PAPER_10.items():
        paper = {"machines": machines}
        base.append({"job": job, "machines": machines, "makespan_s": makespan_s, "spot_usd": spot_usd,
                     "on_demand_usd": on_demand_usd, "paper": paper})  # fmt: skip
        for scenario, (hibernations, _, _, cost_usd) in PAPER_11[job].items():
            cells.append({"job": job, "scenario": scenario, "planner": "hads-as-printed", "cost_usd": cost_usd,
                          "hibernations": hibernations, "usd_by_hibernations": {0: 0.3, 1: 0.4, 2: 0.5}})  # fmt: skip
            shares.append({"job": job, "scenario": scenario, "stolen": 0 if scenario == "c2" else 20, "recovered": 60,
                           "to_idle": 30, "to_busy": 30, "to_new": 80 if scenario == "c2" else 40})  # fmt: skip
    curve = [{"planner": "hads-as-printed", "k_r": k_r, "k_h": k_h, "cost_usd": 2.0 - 0.1 * k_r}
             for k_r in (0.0, 3.0, 7.0) for k_h in (1.0, 3.0, 5.0, 6.0, 7.0)]  # fmt: skip
    figure_4 = {name: {"ours_s": seconds} for name, seconds in PAPER_FIGURE_4_S.items()}
    return {"table_10": base, "table_11": cells, "figure_4": figure_4, "figure_5": shares, "figure_6": curve}


def test_the_papers_own_numbers_reproduce_every_statement_that_is_checked():
    wrong = [row["claim"] for row in statements(as_printed()) if row["holds"] is False]
    assert wrong == []
    assert sum(row["holds"] is None for row in statements(as_printed())) == 2


def test_every_checked_statement_can_fail():
    summary = as_printed()
    for row in summary["table_10"]:
        row |= {"machines": 9, "makespan_s": 2100, "spot_usd": 1.5, "on_demand_usd": 1.6}
    for row in summary["table_11"]:
        row["cost_usd"] = 9.0 - (row["scenario"] == "c2")
    for row in summary["figure_5"]:
        row |= {"stolen": 5.0 * (row["scenario"] == "c2"), "to_new": 60, "to_idle": 0, "to_busy": 0, "recovered": 0}
    summary["figure_4"] = {name: {"ours_s": 100.0} for name in summary["figure_4"]}
    for row in summary["figure_6"]:
        row["cost_usd"] = 1.0
    holds = [row["claim"] for row in statements(summary) if row["holds"]]
    assert holds == []
    assert all(row["why"] for row in statements(summary) if row["holds"] is False)


def test_a_statement_whose_runs_are_missing_is_not_checked():
    summary = as_printed() | {"figure_6": [], "table_11": [], "figure_5": []}
    judged = statements(summary)
    assert len(judged) == len(STATEMENTS)
    late = [row for row in judged if row["claim"].startswith(("table 11", "figure 5", "figure 6"))]
    assert {row["holds"] for row in late} == {None}
    assert all(line.startswith("- not checked") for line in listed(late))


def test_a_cell_that_saves_too_little_is_told_with_its_hibernations_and_those_of_the_paper():
    summary = as_printed()
    dear = next(row for row in summary["table_11"] if (row["job"], row["scenario"]) == ("J551", "c1"))
    dear |= {"cost_usd": 0.6, "hibernations": 1.75}
    (told,) = [row["why"] for row in statements(summary) if row["claim"].startswith("table 11: c1 saves")]
    # 0.67 hibernations: two thirds of the way from $0.30 to $0.40, of $0.995 on demand.
    assert "1.75 hibernations a run" in told and "0.67" in told and "save 63% here" in told
