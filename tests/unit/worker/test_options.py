"""Options of the worker are read as people write them."""

from __future__ import annotations

import pytest

from windfall.worker.__main__ import parser
from windfall.worker.site import main as site_main


@pytest.mark.parametrize(
    ("said", "size_mb"), [("4096", 4096), ("500M", 500), ("4G", 4096), ("1.5 GB", 1536), ("2gib", 2048)]
)
def test_memory_is_told_in_megabytes_or_with_its_unit(said, size_mb):
    assert parser("windfall worker").parse_args(["--memory", said]).memory == size_mb
    assert site_main.parser("windfall site agent").parse_args(["--ram", said]).ram == size_mb


@pytest.mark.parametrize("said", ["0", "-1", "lots", "4X", "", "nan"])
def test_memory_that_is_no_size_is_refused_with_an_example(said, capsys):
    for made, option in ((parser("windfall worker"), "--memory"), (site_main.parser("windfall site agent"), "--ram")):
        with pytest.raises(SystemExit) as ended:
            made.parse_args([f"{option}={said}"])
        assert ended.value.code == 2
        assert "is not a size (examples: 4096 for MB, 500M, 4G)" in capsys.readouterr().err
