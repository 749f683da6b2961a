"""What a specification may hold."""

from __future__ import annotations

import pytest

from windfall.bags.spec import JobSpec, check
from windfall.errors import BadInput


@pytest.mark.parametrize(("size", "fits"), [(131_071, True), (131_072, False)])
def test_an_argument_that_no_process_can_be_started_with_is_refused(size, fits):
    spec = JobSpec(name="long", command=["echo", "y" * size])
    if fits:
        check(spec)
    else:
        with pytest.raises(BadInput, match="an argument of 131,072 bytes"):
            check(spec)
