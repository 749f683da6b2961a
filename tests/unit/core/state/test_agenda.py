"""The agenda: a queue by time that gives what one sorted list would give."""

from hypothesis import given
from hypothesis import strategies as st

from windfall.core.state.agenda import STRETCH_S, Agenda

times = st.one_of(st.floats(0.0, 10 * STRETCH_S), st.sampled_from([0.0, STRETCH_S, 3 * STRETCH_S, 1e9, 1e15]))


@given(st.lists(st.one_of(times, st.none()), max_size=60))
def test_entries_leave_in_the_order_of_time_however_they_came(steps):
    """None takes the next one off."""
    agenda, model = Agenda(), []
    for number, t in enumerate(steps):
        if t is not None:
            agenda.push((t, number))
            model = sorted([*model, (t, number)])
        elif model:
            assert agenda.front[0] == model[0]
            assert agenda.pop() == model.pop(0)
        assert list(agenda) == model
        assert (len(agenda), bool(agenda)) == (len(model), bool(model))


@given(st.lists(times, max_size=60), times)
def test_what_is_due_is_found_in_order_and_stays(moments, t):
    entries = [(moment, number) for number, moment in enumerate(moments)]
    agenda = Agenda(entries)
    assert agenda.due(t) == sorted(entry for entry in entries if entry[0] <= t)
    assert list(agenda) == sorted(entries)
