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


@pytest.mark.parametrize("spread", [-0.1, 3.5, float("inf")])
def test_a_spread_that_cannot_be_is_refused(spread):
    with pytest.raises(BadInput, match="spread must be 0 to 3"):
        check(JobSpec(name="a", command=["true"], spread=spread))
    check(JobSpec(name="a", command=["true"], spread=0.0))
