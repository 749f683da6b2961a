"""The count of a job's files is that of a set of what is named, held and on its way, whatever happens in between."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from windfall.server.job_files import CHECKPOINT, Files

CONTENTS = range(6)
HOLDERS = [(task, attempt) for task in (0, 1) for attempt in (CHECKPOINT, 1, 2)]
steps = st.lists(
    st.tuples(st.sampled_from(["hold", "release", "one", "name"]), st.sampled_from(HOLDERS), st.sampled_from(CONTENTS)),
    max_size=60,
)


def name_of(content: int) -> str:
    return sha256(b"%d" % content).hexdigest()


def size_of(content: int) -> int:
    return 10**content


@given(steps)
def test_each_file_counts_once_however_often_it_is_named_and_held(taken):
    files, named, held = Files(), set[int](), dict[tuple[int, int], set[int]]()
    for what, holder, content in taken:
        if what == "hold":
            files.hold(holder, name_of(content), size_of(content))
            held.setdefault(holder, set()).add(content)
        elif what == "release":
            files.release(holder)
            held.pop(holder, None)
        elif what == "one":
            files.release(holder, [name_of(content)])
            held.get(holder, set()).discard(content)
        else:
            files.name(name_of(content), size_of(content))
            named.add(content)
        counted = named.union(*held.values())
        assert files.total == sum(map(size_of, counted))
        assert {content for content in CONTENTS if files.has(name_of(content))} == counted


@given(steps, st.integers(0, 3))
def test_with_few_digests_in_memory_the_count_is_never_below_the_files(taken, most):
    files, named = Files(), set[int]()
    for what, holder, content in taken:
        if what == "hold":
            files.hold(holder, name_of(content), size_of(content))
        elif what == "release":
            files.release(holder)
        else:
            files.name(name_of(content), size_of(content), remember=len(files.named) < most)
            named.add(content)
        assert files.total >= sum(map(size_of, named)) and len(files.named) <= most
