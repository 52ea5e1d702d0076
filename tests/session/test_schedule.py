"""The order of phases, as pure arithmetic: no session, no clock."""

import dataclasses

import pytest

from framework.session.schedule import Commit, Evaluate, Progress, Schedule, Stop, Train

# Phases are written as they come: `+3` trains 3 steps, `valid` makes a pass, `C` commits, `.` stops.


class _Walk:
    """Does what a schedule says, without a graph: the train runs move the step by `moves`, over and over."""

    def __init__(self, schedule, progress=Progress(0, 0), moves=(1,), due=(), runs=0, epoch=None, sets_due=None):  # noqa: B008  (frozen)
        self.schedule = schedule
        self.progress = progress
        self._moves = moves
        self._due = due  # steps at which the clock asks for a commit
        self._runs = runs
        self._epoch = epoch  # the steps after which the training data starts again
        self._sets_due = sets_due or {}  # sets that the clock asks for, by step
        self._asked = set()
        self.phases = []
        self.events = []  # a train run, a pass or a commit each

    def _change(self, **changes):
        self.progress = dataclasses.replace(self.progress, **changes)

    def _train(self, steps, stop_after):
        first = self.progress.step
        while self.progress.step < first + steps:
            step = self.progress.step
            if self._epoch is not None and step - self.progress.epoch_start >= self._epoch:
                self._change(epochs=self.progress.epochs + 1, epoch_start=step)
                break
            self._change(step=step + self._moves[self._runs % len(self._moves)], previous_step=step, unsaved_runs=True)
            self._runs += 1
            self.events.append(f't{self.progress.step}')
            if len(self.events) == stop_after or self._clock() or self._clock_sets():
                break
        if self.progress.step > first:
            self.phases.append(f'+{self.progress.step - first}')

    def _clock(self):
        return self.progress.step in self._due and self.progress.step not in self._asked

    def _clock_sets(self):
        step = self.progress.step
        return [name for name in self._sets_due.get(step, ()) if self.progress.evaluated.get(name) != step]

    def _evaluate(self, streams, stop_after):
        for stream in streams:
            step = self.progress.step
            self._change(evaluated={**self.progress.evaluated, stream: step}, unsaved_passes=True)
            self.phases.append(stream)
            self.events.append(f'{stream}{step}')
            if len(self.events) == stop_after:
                return

    def go(self, stop_after=None):
        """Goes on to the end; after so many events a signal comes."""
        while True:
            if len(self.events) == stop_after:
                self._change(ended=True, interrupted=True)
            match self.schedule.next(self.progress, self._clock(), self._clock_sets()):
                case Train(steps):
                    self._train(steps, stop_after)
                case Evaluate(streams):
                    self._evaluate(streams, stop_after)
                case Commit():
                    self._asked.add(self.progress.step)
                    self._change(committed=True, unsaved_runs=False, unsaved_passes=False)
                    self.phases.append('C')
                    self.events.append(f'C{self.progress.step}')
                case Stop():
                    self.phases.append('.')
                    return self

    def resumed(self):
        """Returns the walk of the next process: it knows what the last commit knew."""
        assert not self.progress.unsaved_runs and not self.progress.unsaved_passes
        progress = dataclasses.replace(self.progress, ended=False, interrupted=False)
        return _Walk(self.schedule, progress, self._moves, runs=self._runs, epoch=self._epoch)


def _phases(schedule, **settings):
    return ' '.join(_Walk(schedule, **settings).go().phases)


def test_without_sets_a_run_commits_at_its_beginning_and_its_end():
    assert _phases(Schedule(7)) == 'C +7 C .'


def test_every_set_has_its_own_period_and_all_come_at_the_end():
    # step    0    2      3     4      6            7
    # a (2)        a            a      a            a
    # b (3)               b            b            b
    schedule = Schedule(7, {'a': 2, 'b': 3})
    assert _phases(schedule) == 'C +2 a +1 b +1 a +2 a b +1 a b C .'


def test_a_set_without_period_comes_at_the_end_only():
    assert _phases(Schedule(4, {'a': 2, 'test': None})) == 'C +2 a +2 a test C .'


def test_a_pass_comes_before_the_commit_of_its_step():
    assert _phases(Schedule(6, {'a': 3}, commit_steps=3)) == 'C +3 a C +3 a C .'


def test_commits_in_steps_have_their_own_period():
    # step   0    2    3    4    5
    # commit C    C         C    C
    # a (3)            a         a
    assert _phases(Schedule(5, {'a': 3}, commit_steps=2)) == 'C +2 C +1 a +1 C +1 a C .'


def test_a_commit_that_the_clock_asks_for_moves_no_boundary():
    assert _phases(Schedule(6, {'a': 4}), due=(1, 3)) == 'C +1 C +2 C +1 a +2 a C .'


def test_a_commit_that_the_clock_asks_for_on_a_boundary_comes_after_the_pass():
    assert _phases(Schedule(6, {'a': 4}), due=(4,)) == 'C +4 a C +2 a C .'


def test_without_commits_there_is_none_even_if_all_ask():
    assert _phases(Schedule(4, {'a': 2}, commits=False, commit_steps=1), due=(1, 2)) == '+1 +1 a +2 a .'


def test_there_are_never_two_passes_at_one_step():
    walk = _Walk(Schedule(6, {'a': 3, 'b': 2}, commit_steps=1, eval_at_start=True)).go()
    passes = [event for event in walk.events if event[0] in 'ab']
    assert passes == ['a0', 'b0', 'b2', 'a3', 'b4', 'a6', 'b6']


def test_passes_at_step_0_come_on_request_and_before_the_first_commit():
    assert _phases(Schedule(2, {'a': 2}, eval_at_start=True)) == 'a C +2 a C .'


def test_a_run_that_starts_at_a_later_step_has_no_passes_at_its_start():
    schedule = Schedule(12, {'a': 4}, eval_at_start=True)
    assert _phases(schedule, progress=Progress(10, 10)) == 'C +2 a C .'


def test_larger_steps_make_the_pass_at_the_first_step_behind_the_boundary():
    # step   0  3  6  9  12
    # a (4)        a  a   a    (boundaries 4, 8, 12)
    walk = _Walk(Schedule(12, {'a': 4}), moves=(3,)).go()
    assert [event for event in walk.events if event[0] == 'a'] == ['a6', 'a9', 'a12']


def test_a_step_over_several_boundaries_makes_one_pass():
    walk = _Walk(Schedule(20, {'a': 2}), moves=(10,)).go()
    assert walk.events == ['C0', 't10', 'a10', 't20', 'a20', 'C20']


def test_a_step_beyond_the_step_to_reach_ends_the_run():
    assert _phases(Schedule(5, {'a': None}), moves=(3,)) == 'C +6 a C .'


def test_runs_that_do_not_move_the_step_cross_no_boundary_again():
    # Gradient accumulation: the step moves in every third run.
    walk = _Walk(Schedule(4, {'a': 2}, commit_steps=2), moves=(0, 0, 1)).go()
    assert ' '.join(walk.events) == 'C0 t0 t0 t1 t1 t1 t2 a2 C2 t2 t2 t3 t3 t3 t4 a4 C4'


def test_still_runs_at_step_0_repeat_no_pass():
    walk = _Walk(Schedule(1, {'a': 1}, eval_at_start=True), moves=(0, 1), due=(0,)).go()
    assert walk.events == ['a0', 'C0', 't0', 't1', 'a1', 'C1']


def test_a_run_that_its_data_or_a_hook_ended_makes_its_last_passes():
    ended = Progress(5, 4, {'a': 4}, committed=True, unsaved_runs=True, ended=True)
    assert _phases(Schedule(None, {'a': 4}), progress=ended) == 'a C .'


def test_an_interrupted_run_commits_and_makes_no_pass():
    on_boundary = Progress(4, 3, committed=True, unsaved_runs=True, ended=True, interrupted=True)
    assert _phases(Schedule(8, {'a': 4}), progress=on_boundary) == 'C .'


def test_an_interrupted_run_without_news_commits_nothing():
    assert _phases(Schedule(8), progress=Progress(4, 3, committed=True, ended=True, interrupted=True)) == '.'


def test_a_run_without_a_step_to_reach_trains_to_the_next_boundary_or_for_ever():
    assert Schedule(None, {'a': 10}).next(Progress(7, 6, committed=True)) == Train(3)
    assert Schedule(None).next(Progress(7, 6, committed=True)).steps > 10**9


def test_a_run_whose_step_is_reached_and_committed_has_nothing_to_do():
    finished = _Walk(Schedule(4, {'a': 2})).go()
    assert finished.resumed().go().phases == ['.']


def test_a_set_that_is_new_at_a_finished_run_gets_its_pass_and_a_commit():
    done = Progress(4, 3, {'a': 4}, committed=True)
    assert _phases(Schedule(4, {'a': 2, 'b': 2}), progress=done) == 'b C .'


def test_a_run_that_is_made_longer_goes_on_without_repeating_its_last_pass():
    done = Progress(5, 4, {'a': 5}, committed=True)
    assert _phases(Schedule(9, {'a': 4}), progress=done) == '+3 a +1 a C .'


def test_three_sets_with_periods_of_their_own_come_together_where_their_periods_meet():
    # step    0  10 20 30 40 50 60 70 80 90 100
    # a (10)     a  a  a  a  a  a  a  a  a  a
    # b (20)        b     b     b     b     b
    # c (50)                 c              c
    schedule = Schedule(100, {'a': 10, 'b': 20, 'c': 50})
    assert _phases(schedule) == (
        'C +10 a +10 a b +10 a +10 a b +10 a c +10 a b +10 a +10 a b +10 a +10 a b c C .'
    )  # fmt: skip


@pytest.mark.parametrize('stop', [1, 10, 25, 40, 50, 77, 99])
def test_a_stop_between_periods_changes_no_pass(stop):
    # A signal at any step: a commit, and the next process makes the passes that were left, at their steps.
    schedule = Schedule(100, {'a': 10, 'b': 20, 'c': 50})
    whole = [event for event in _Walk(schedule).go().events if event[0] != 'C']
    at_stop = whole.index(f't{stop}') + 2  # the commit of step 0 is an event, too
    first = _Walk(schedule).go(stop_after=at_stop)
    assert first.phases[-2:] == ['C', '.']
    second = first.resumed().go()
    assert [event for event in first.events + second.events if event[0] != 'C'] == whole


# Data that starts again.


def test_periods_begin_anew_with_every_epoch_and_its_end_makes_the_passes():
    # epochs of 7 steps    |0       |1        |2
    # step                 0    5  7    12 14     19 21
    # a (5)                     a  a    a  a      a  a
    # end only                                       b
    schedule = Schedule(None, {'a': 5, 'b': None}, restart=True, train_epochs=3)
    assert _phases(schedule, epoch=7) == 'C +5 a +2 a +5 a +2 a +5 a +2 a b C .'


def test_a_set_with_a_period_in_epochs_comes_at_their_ends():
    # epochs of 7 steps    |0   |1      |2      |3      |4
    # step                 0    7      14      21      28      35
    # a (2 epochs)                      a               a       a
    # b (1 epoch)               b       b       b       b       b
    schedule = Schedule(None, {'a': None, 'b': None}, {'a': 2, 'b': 1}, restart=True, train_epochs=5)
    assert _phases(schedule, epoch=7) == 'C +7 b +7 a b +7 b +7 a b +7 a b C .'


def test_a_period_that_ends_with_the_epoch_makes_one_pass():
    schedule = Schedule(14, {'a': 7}, restart=True)
    assert _phases(schedule, epoch=7) == 'C +7 a +7 a C .'


def test_the_step_to_reach_ends_a_run_in_the_middle_of_an_epoch():
    assert _phases(Schedule(10, {'a': 5}, restart=True), epoch=7) == 'C +5 a +2 a +3 a C .'


def test_commits_keep_their_period_over_epochs():
    # step    0  4   7  8   12 14
    # commit  C  C      C   C  C
    # a              a         a
    schedule = Schedule(14, {'a': 7}, restart=True, commit_steps=4)
    assert _phases(schedule, epoch=7) == 'C +4 C +3 a +1 C +4 C +2 a C .'


def test_a_clock_asks_for_passes_between_steps():
    # step    0  2     5  6
    # a          a     a  a
    # b (3)         b     b
    schedule = Schedule(6, {'a': None, 'b': 3}, second_periods={'a': 60.0})
    assert _phases(schedule, sets_due={2: ['a'], 5: ['a']}) == 'C +2 a +1 b +2 a +1 a b C .'


def test_whoever_wants_a_commit_gets_it_after_the_passes():
    wanted = Progress(3, 2, {'a': 3}, committed=True, unsaved_runs=True, unsaved_passes=True, commit_wanted=True)
    assert Schedule(8, {'a': 3}).next(wanted) == Commit()


_SCHEDULES = {
    'periods': Schedule(12, {'a': 3, 'b': 4, 'c': None}, commit_steps=5, eval_at_start=True),
    'all on one boundary': Schedule(8, {'a': 4, 'b': 4}, commit_steps=4),
    'end on a boundary': Schedule(6, {'a': 3}, commit_steps=2),
    'nothing but the end': Schedule(5, {'a': None}),
}


@pytest.mark.parametrize('moves', [(1,), (2,), (0, 0, 1), (1, 3)])
@pytest.mark.parametrize('name', _SCHEDULES)
def test_a_run_that_is_stopped_anywhere_goes_on_with_the_phases_that_were_left(name, moves):
    # Stops after every event: in a train phase, on a boundary before its passes, between them, before its commit.
    whole = _Walk(_SCHEDULES[name], moves=moves).go().events
    for stop_after in range(len(whole)):
        first = _Walk(_SCHEDULES[name], moves=moves).go(stop_after)
        extra = f'C{first.progress.step}'  # the commit of the interruption
        assert first.events[:stop_after] == whole[:stop_after]
        assert first.events[stop_after:] in ([extra], []), f'stopped after {whole[:stop_after]}'
        second = first.resumed().go()
        assert second.phases[-1] == '.'
        left = [event for event in whole[stop_after:] if event != extra]
        assert [event for event in second.events if event != extra] == left, f'stopped after {whole[:stop_after]}'


@pytest.mark.parametrize('stop_after', range(1, 34))
def test_a_run_over_epochs_that_is_stopped_anywhere_goes_on_with_the_phases_that_were_left(stop_after):
    schedule = Schedule(None, {'a': 5, 'b': None, 'c': None}, {'c': 2}, restart=True, train_epochs=3, commit_steps=6)
    whole = _Walk(schedule, epoch=7).go().events
    first = _Walk(schedule, epoch=7).go(stop_after)
    extra = f'C{first.progress.step}'
    second = first.resumed().go()
    made = first.events[:stop_after] + second.events
    assert [event for event in made if event != extra] == [event for event in whole if event != extra]


@pytest.mark.parametrize('steps', range(9))
def test_a_killed_run_repeats_from_its_last_commit(steps):
    # kill -9: what came after the last commit is gone, and comes again.
    schedule = Schedule(8, {'a': 3}, commit_steps=4)
    whole = _Walk(schedule).go().events
    at_commit = whole[: whole.index(f'C{steps - steps % 4}') + 1]
    committed = _Walk(schedule).go(len(at_commit))
    assert committed.events == at_commit
    assert at_commit + committed.resumed().go().events == whole


@pytest.mark.parametrize(
    ('settings', 'text'),
    [
        (
            {'train_steps': 600, 'periods': {'valid': 50, 'test': None}, 'commit_steps': 100},
            'Train to step 600; evaluate `valid` every 50 steps and at the end, `test` at the end; '
            'commit every 100 steps and at the end.',
        ),
        ({'train_steps': None}, 'Train until the data ends; no evaluation; commit by the clock and at the end.'),
        ({'train_steps': 3, 'commits': False}, 'Train to step 3; no evaluation; no commits.'),
        (
            {'train_steps': None, 'restart': True, 'train_epochs': 3, 'periods': {'a': 5, 'b': None}},
            'Train for 3 epochs, starting the data again when it ends; evaluate `a` every 5 steps and at the end of '
            'the data, `b` at the end; commit by the clock and at the end.',
        ),
        (
            {
                'train_steps': 9,
                'periods': {'a': None, 'b': None},
                'epoch_periods': {'a': 1},
                'second_periods': {'b': 60},
                'restart': True,
            },
            'Train to step 9, starting the data again when it ends; evaluate `a` every epoch and at the end, `b` every '
            '60 s and at the end of the data; commit by the clock and at the end.',
        ),
    ],
)
def test_a_schedule_says_what_comes_when(settings, text):
    assert str(Schedule(**settings)) == text
