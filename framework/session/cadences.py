"""Which train runs the hooks of training have to see: between those, many runs may be made in one.

A hook sees real runs of the monitored session, with their context, fetches and feeds, and never a fused one. A hook
that nobody knows sees every run. TensorFlow's own act at certain steps, and are shown the runs of those; a user's may
say so as well, by a method

    next_wanted_step(global_step: int) -> int | None

which returns the next step whose run the hook has to see, None for no more. It may be shown others: all that are made
one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.session.hooks import Hook, sees_runs

_DECLARES = 'next_wanted_step'


class Cadences:
    """The cadences of the hooks of training.

    Args:
        hooks: The hooks.
        loss: The loss of the model.

    Attributes:
        watched: Whether a hook sees runs, and may change something in them.
        every_step: The hooks that have to see every run.
    """

    def __init__(self, hooks: Sequence[Hook], loss: tf.Tensor):
        watching = [hook for hook in hooks if sees_runs(hook)]
        # Such a hook is called twice in a run, and may count that.
        twice = [hook for hook in watching if watching.count(hook) > 1]
        self._nan = [hook for hook in watching if type(hook) is v1.train.NanTensorHook and _watches(hook, loss)]
        self.watched = bool(watching)
        self._quiet: list[Callable[[int, int], int]] = []
        self._counting: list[Any] = []
        self.every_step: list[Hook] = []
        for hook in watching:
            quiet = None if hook in twice else _quiet_steps(hook)
            if type(hook) is v1.train.LoggingTensorHook:
                self._counting.append(hook)
            if quiet is not None:
                self._quiet.append(quiet)
            elif hook in twice or hook not in self._nan:
                self.every_step.append(hook)

    def quiet(self, step: int, steps: int) -> int:
        """Returns how many steps no hook has to see.

        Args:
            step: The global step.
            steps: At most so many are asked for, from there on.
        """
        if self.every_step:
            return 0
        return min([steps, *(quiet(step, steps) for quiet in self._quiet)])

    def skipped(self, steps: int) -> None:
        """Tells hooks that count runs of those that they did not see."""
        for hook in self._counting:
            hook._iter_count += steps  # it counts the calls of a method, and there is no other way to tell it

    def saw_loss(self, session: v1.Session, loss: float) -> bool:
        """Shows hooks that wait for a loss that is not finite the newest one, and returns whether they ask to stop.

        Args:
            session: The raw session.
            loss: The loss.

        Raises:
            tf.compat.v1.train.NanLossDuringTrainingError: If a hook says so.
        """
        stop = False
        for hook in self._nan:
            context = v1.train.SessionRunContext(hook.before_run(None), session)
            hook.after_run(context, v1.train.SessionRunValues(loss, None, None))
            stop = stop or context.stop_requested
        return stop


def _watches(hook: Any, loss: tf.Tensor) -> bool:
    return getattr(hook._loss_tensor, 'name', hook._loss_tensor) == loss.name


def _quiet_steps(hook: Any) -> Callable[[int, int], int] | None:
    """Returns what tells how many steps after a step, of so many, a hook has not to see; None for an unknown hook."""
    if hasattr(hook, _DECLARES):
        return lambda step, steps: _before(hook.next_wanted_step(step), step, steps)
    of_type = _STOCK.get(type(hook))  # a subclass may do anything
    return None if of_type is None else lambda step, steps: of_type(hook, step, steps)


def _before(wanted: int | None, step: int, steps: int) -> int:
    return steps if wanted is None else max(wanted - step - 1, 0)


# TensorFlow's hooks keep what they wait for in private attributes, and there is no other way to ask.


def _of_stop(hook: Any, step: int, steps: int) -> int:
    return _before(hook._last_step, step, steps)


def _of_timer(hook: Any, step: int, steps: int) -> int:
    return _of_timer_at(hook._timer, step, steps)


def _of_timer_that_looks_ahead(hook: Any, step: int, steps: int) -> int:
    """Of hooks that decide what they fetch in a run by the step that they saw in the run before."""
    return max(_of_timer_at(hook._timer, step, steps) - 1, 0)


def _of_logging(hook: Any, step: int, steps: int) -> int:
    del step
    return _of_timer_at(hook._timer, hook._iter_count - 1, steps)


def _of_waiter(hook: Any, step: int, steps: int) -> int:
    del step
    return steps if hook._worker_is_started else 0


def _of_timer_at(timer: v1.train.SecondOrStepTimer, step: int, steps: int) -> int:
    """Returns how many steps pass before the timer triggers, by what it says of the steps after this one."""
    if not timer.should_trigger_for_step(step + steps):
        return steps
    silent, triggers = 0, steps  # it triggers from some step on
    while triggers - silent > 1:
        middle = (silent + triggers) // 2
        if timer.should_trigger_for_step(step + middle):
            triggers = middle
        else:
            silent = middle
    return silent


_STOCK: dict[type, Callable[[Any, int, int], int]] = {
    v1.train.StopAtStepHook: _of_stop,
    v1.train.CheckpointSaverHook: _of_timer,
    v1.train.StepCounterHook: _of_timer,
    v1.train.SummarySaverHook: _of_timer_that_looks_ahead,
    v1.train.ProfilerHook: _of_timer_that_looks_ahead,
    v1.train.LoggingTensorHook: _of_logging,
    v1.train.GlobalStepWaiterHook: _of_waiter,
}
