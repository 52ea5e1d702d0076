"""Where the run is, told at moments that come anyway, and not too often."""

from framework.reporting import rows, writers
from framework.session.pulse import Pulse


class Wants(writers.Writer):
    wants_progress = True

    def __init__(self):
        self.told = []

    def write_progress(self, row):
        self.told.append(row)


def test_steps_are_told_ten_times_a_second_at_most(clock):
    writer = Wants()
    pulse = Pulse(writer, clock, 600)
    for step in range(1, 9):
        pulse.step(step)
        clock.advance(0.06)
    assert [row.step for row in writer.told] == [1, 3, 5, 7]
    assert writer.told[0] == rows.ProgressRow('train', 1, 600)


def test_the_beginning_of_a_pass_is_always_told(clock):
    writer = Wants()
    pulse = Pulse(writer, clock, 600)
    pulse.step(5)
    for batches in (0, 1, 2):
        pulse.batches('valid', batches, 3)
    clock.advance(1)
    pulse.batches('valid', 3, 3)
    assert writer.told[1:] == [rows.ProgressRow('valid', 5, 600, batches, 3) for batches in (0, 3)]


def test_who_does_not_want_to_know_is_not_asked_twice(clock):
    class Never(writers.Writer):
        def write_progress(self, row):
            raise AssertionError

    pulse = Pulse(Never(), clock)
    pulse.step(1)
    pulse.batches('valid', 0, None)
