"""How many runs are made in one, and in which threads."""

import pytest

from framework.session.pace import Pace


@pytest.fixture
def measured(clock):
    def of(pace, runs, secs):
        start = clock()
        clock.advance(secs)
        pace.measured(runs, start)

    return of


def _in_one_thread(pace):
    return pace.options is not None


def test_a_call_takes_two_seconds_at_most(clock, measured):
    pace = Pace(clock, first=1)
    assert pace.fits == 1
    measured(pace, 1, 0.5)
    assert pace.fits == 4
    measured(pace, 4, 0.03125)
    assert pace.fits == 256
    measured(pace, 1, 60.0)
    assert pace.fits == 1
    measured(pace, 1, 0.0)
    assert pace.fits > 10**6


@pytest.mark.parametrize('one_is_faster', [True, False])
def test_the_way_of_threads_that_was_faster_stays(clock, measured, one_is_faster):
    pace = Pace(clock)
    tried = []
    measured(pace, 100, 9.0)  # the first call makes the programs
    for _ in range(5):
        tried.append(_in_one_thread(pace))
        measured(pace, 100, 1.0 if _in_one_thread(pace) == one_is_faster else 2.0)
    assert sum(tried) == 3
    for _ in range(3):
        assert _in_one_thread(pace) == one_is_faster
        measured(pace, 100, 5.0)


def test_short_calls_tell_nothing_about_threads(clock, measured):
    pace = Pace(clock)
    for _ in range(20):
        measured(pace, 7, 1.0)
        assert not _in_one_thread(pace)
