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


def test_a_call_takes_two_seconds_at_most_and_grows_by_two(clock, measured):
    # runs    1    2     4    8      (4: a boundary)   8     5
    # secs   .25  .25   .25  .25     .125              4.0
    # fits    2    4     8   16      16                4     8
    pace = Pace(clock)
    assert pace.fits == 1
    for runs, secs, fits in [(1, 0.25, 2), (2, 0.25, 4), (4, 0.25, 8), (8, 0.25, 16), (4, 0.125, 16), (8, 4.0, 4)]:
        measured(pace, runs, secs)
        assert pace.fits == fits
    measured(pace, 1, 60.0)
    assert pace.fits == 1


@pytest.mark.parametrize('one_is_faster', [True, False])
def test_the_way_of_threads_that_was_faster_stays(clock, measured, one_is_faster):
    pace = Pace(clock)
    tried = []
    assert not _in_one_thread(pace)
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
