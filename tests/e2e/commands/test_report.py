"""`windfall report` on a small job of one's own: one page with its pictures."""

from __future__ import annotations

import json

from tests.support.commands.typed import Shell


def test_a_report_is_one_page_with_pictures_and_a_wrong_place_is_said(tmp_path):
    shell = Shell(tmp_path)
    assert shell.windfall("run", "--range", "1-4", "--", "true").code == 0
    ended = shell.windfall("report", "last", "--json")
    assert ended.code == 0, ended
    shown = json.loads(ended.out)
    assert {"Incomplete tasks over time", "Outcomes of attempts", "Run times", "Who ran what"} < {*shown["figures"]}
    text = (tmp_path / "report.html").read_text()
    assert (
        text.count("<svg") == len(shown["figures"])
        and "http://" not in text
        and "data:image" not in text
        and "Failures" not in text
    )
    assert "budget" not in text and "deadline" not in text
    assert "4 of 4 tasks done" in text
    ended = shell.windfall("report", "last", "--out", "report.html/place.html")
    assert ended.code == 2
    assert "report.html/place.html" in ended.err
    ended = shell.windfall("report", "last", "--out", "report.pdf")
    assert ended.code == 2 and "-o report.html" in ended.err and not (tmp_path / "report.pdf").exists()
