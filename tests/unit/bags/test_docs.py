"""The reference of job files says what the code takes: every key, every default, and examples that are read."""

import re
from pathlib import Path

import msgspec
import pytest

from windfall.bags.jobfile import JobFile, JobTable, read_job_file
from windfall.bags.settings import Needs
from windfall.bags.spec import JobSpec

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "job-toml.md").read_text()


def test_every_key_of_a_job_file_is_in_the_reference_and_no_other():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert rows == set(JobTable.__struct_fields__)


def test_every_key_of_a_task_is_named_where_tasks_are_described():
    described = PAGE.partition("## Tasks that say everything")[2]
    assert [key for key in Needs.__struct_fields__ if f"`{key}`" not in described] == []


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_are_job_files(example, tmp_path):
    (tmp_path / "job.toml").write_text(example)
    assert isinstance(read_job_file(tmp_path / "job.toml"), JobFile)


def test_the_json_examples_are_tasks():
    for row in re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1].splitlines():
        assert msgspec.json.decode(row, type=Needs).command


@pytest.mark.parametrize("key", ["cpus", "max_failures", "max_losses", "priority"])
def test_the_defaults_in_the_reference_are_those_of_the_code(key):
    written = re.search(rf"^\| `{key}` \| [^|]+\| ([^|]+) \|", PAGE, re.MULTILINE)[1].strip()
    assert float(written) == getattr(JobSpec(name="x"), key)
