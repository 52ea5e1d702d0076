"""One graph and one session, driven by hand: without any framework, and in a `MonitoredTrainingSession`."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from benchmarks import networks
from benchmarks.contenders.rounds import Contender, Figures
from framework.run_config import default_session_config

_NEVER = 2**40  # a step that no run reaches


@dataclasses.dataclass(frozen=True)
class _Program:
    """The ops of the graph.

    Attributes:
        train: The train op and the loss.
        step: The global step.
        start_training: Starts the training data from its beginning.
        start_pass: Starts the data of a pass, and resets its metrics.
        update: Takes an evaluation batch into the metrics; and its examples.
        values: The metrics.
    """

    train: tuple[tf.Operation, tf.Tensor]
    step: tf.Variable
    start_training: tf.Operation
    start_pass: tf.Operation
    update: tuple[tf.Operation, tf.Tensor]
    values: Mapping[str, tf.Tensor]


def _program(workload: networks.Workload) -> _Program:
    step = v1.train.get_or_create_global_step()
    train_data, eval_data = (v1.data.make_initializable_iterator(workload.input_fn(mode)) for mode in ('train', 'eval'))
    train = networks.training_step(workload, *train_data.get_next())
    features, labels = eval_data.get_next()
    loss, metrics = networks.evaluation(workload, features, labels)
    metrics = {'loss': v1.metrics.mean(loss), **metrics}
    reset = v1.variables_initializer(v1.get_collection(v1.GraphKeys.METRIC_VARIABLES))
    return _Program(
        train,
        step,
        train_data.initializer,
        tf.group(reset, eval_data.initializer),
        (tf.group(*(update for _, update in metrics.values())), tf.shape(labels)[0]),
        {name: value for name, (value, _) in metrics.items()},
    )


def _whole_pass(update: Callable[[], tuple[Any, Any]]) -> int:
    """Takes batches until the data ends, and returns the number of examples."""
    examples = 0
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            examples += int(update()[1])
    return examples


class Floor(Contender):
    """A session's callables, and nothing else: what is left when a framework costs nothing, step by step."""

    def __init__(self, workload: networks.Workload, rounds: int):
        del rounds
        self._workload = workload
        self._train: Callable[[], Any] | None = None

    def round(self) -> Figures:
        """See `Contender`."""
        if self._train is None:
            self._open()
        loss = 0.0
        for _ in range(self._workload.steps):
            loss = self._train()[1]
        self._start_pass()
        examples = _whole_pass(self._update)
        values, step = self._values()
        return Figures(int(step), float(loss), {name: float(value) for name, value in values.items()}, None, examples)

    def close(self) -> None:
        """See `Contender`."""
        self._session.close()

    def _open(self) -> None:
        with tf.Graph().as_default() as graph:
            program = _program(self._workload)
            self._session = v1.Session(graph=graph, config=default_session_config())
            self._session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            self._session.run(program.start_training)
            make = self._session.make_callable
            self._train, self._start_pass = make(list(program.train)), make(program.start_pass)
            self._update, self._values = make(list(program.update)), make([dict(program.values), program.step])


class Monitored(Contender):
    """A `MonitoredTrainingSession` with the hooks that people give it, and passes on its raw session."""

    def __init__(self, workload: networks.Workload, rounds: int):
        del rounds
        self._workload = workload
        self._session: Any = None

    def round(self) -> Figures:
        """See `Contender`."""
        if self._session is None:
            self._open()
        loss = 0.0
        for _ in range(self._workload.steps):
            _, loss = self._session.run(self._program.train)
        return self._session.run_step_fn(lambda step_context: self._pass(step_context.session, float(loss)))

    def close(self) -> None:
        """See `Contender`."""
        self._session.close()

    def _open(self) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._program = program = _program(self._workload)
            hooks = [
                v1.train.StopAtStepHook(last_step=_NEVER),
                v1.train.LoggingTensorHook({'loss': program.train[1], 'step': program.step}, every_n_iter=100),
                v1.train.StepCounterHook(every_n_steps=100, summary_writer=_NoSummaries()),
            ]
            start = tf.group(v1.local_variables_initializer(), program.start_training)
            self._session = v1.train.MonitoredTrainingSession(
                scaffold=v1.train.Scaffold(local_init_op=start),
                hooks=hooks,
                save_summaries_steps=None,
                save_summaries_secs=None,
                config=default_session_config(),
            )

    def _pass(self, session: v1.Session, loss: float) -> Figures:
        session.run(self._program.start_pass)
        examples = _whole_pass(lambda: session.run(self._program.update))
        values, step = session.run([dict(self._program.values), self._program.step])
        return Figures(int(step), loss, {name: float(value) for name, value in values.items()}, None, examples)


class _NoSummaries:
    """What the counter of steps writes its rate to."""

    def add_summary(self, summary: Any, global_step: int | None = None) -> None:
        """Writes nothing."""
