"""The graphs that an experiment needs: the one of training and evaluation, and those of sets that can't share it."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import config, errors, serving
from framework.graph import compiled, prediction
from framework.graph.calls import Compiled, Model
from framework.run_config import AUTO, OFF, REQUIRE, EvalSet, InputFn, default_session_config
from framework.session.detached import DetachedEvaluation
from framework.session.evaluation import Evaluation
from framework.spec import ModeKeys
from framework.warm_start import WarmStartSettings

_BY_REQUEST = '`Experiment.evaluation_graph` asks for it'


@dataclasses.dataclass(frozen=True)
class Graphs:
    """Compiles the calls of one model.

    Attributes:
        model: What the user wrote.
        seed: Seeds every graph; None seeds none.
        session_config: The configuration of sessions.
        all_apart: Whether every set is evaluated in a graph of its own.
        require_equal_structures: Whether evaluation elements must have training's structure.
        restart: Whether the training data starts again when it ends.
        train_metrics: Whether the metrics of the training call are accumulated while it trains.
        keyed: Whether random draws follow from the count of runs, and from no state of a session.
        ordered_sums: Whether tensors are added up two at a time, in an order that no thread decides.
        hooked: Whether the caller has training hooks, which may do the training.
        fuse: Whether many runs are made in one: `RunConfig.fuse`.
        xla: What of them XLA compiles: `RunConfig.xla`.
        eval_summaries: How many summaries a pass of a training has at most: `RunConfig.eval_summaries`.
        loss_per_example: Whether passes have, beside the metric `loss`, the mean over examples.
    """

    model: Model
    seed: int | None
    session_config: Any = None
    all_apart: bool = False
    require_equal_structures: bool = False
    restart: bool = False
    train_metrics: bool = False
    keyed: bool = False
    ordered_sums: bool = False
    hooked: bool = False
    fuse: str = AUTO
    xla: str | None = None
    eval_summaries: int = 0
    loss_per_example: bool = True

    def training(
        self, train_input_fn: InputFn, sets: Mapping[str, EvalSet]
    ) -> tuple[Compiled, dict[str, DetachedEvaluation]]:
        """Returns the graph of training, and the sets that need a graph of their own, by stream.

        Args:
            train_input_fn: Returns the training data.
            sets: The evaluation sets by stream.
        """
        built = self._compile(train_input_fn, {} if self.all_apart else sets)
        reasons = dict.fromkeys(sets, _BY_REQUEST) if self.all_apart else built.apart
        saved = built.saved_names
        detached = {
            stream: self._detached(sets[stream], reason, saved, self.eval_summaries)
            for stream, reason in reasons.items()
        }
        return built, detached

    def evaluation(self, sets: Mapping[str, EvalSet], saved: frozenset[str]) -> list[DetachedEvaluation]:
        """Returns the sets in graphs without training: those that can share one in one, the others each in its own.

        Args:
            sets: The evaluation sets by stream.
            saved: The names of the variables in the checkpoints that they are for.
        """
        apart: Mapping[str, str] = dict.fromkeys(sets, _BY_REQUEST)
        if not self.all_apart:
            built = self._compile(None, sets, saved=saved)
            apart = built.apart
        shared = {stream: s for stream, s in sets.items() if stream not in apart}
        parts = [self._detached(sets[stream], reason, saved) for stream, reason in apart.items()]
        if not shared:
            return parts
        if apart:
            built = self._compile(None, shared, saved=saved)
        return [DetachedEvaluation(Evaluation(built, shared, fuse=self.fuse), self.session_config), *parts]

    def alone(
        self,
        eval_set: EvalSet,
        saved: frozenset[str] | None,
        warm_start: WarmStartSettings | None = None,
        summaries: int = 0,
    ) -> DetachedEvaluation:
        """Returns one set in a graph without training.

        Args:
            eval_set: The set.
            saved: The names of the variables in the checkpoint that it is for, None where there is none.
            warm_start: What the model begins with where there is none.
            summaries: How many summaries a pass has at most.
        """
        sets = {eval_set.stream: eval_set}
        built = self._compile(None, sets, alone=True, saved=saved)
        evaluation = Evaluation(built, sets, fuse=self.fuse, summaries=summaries)
        return DetachedEvaluation(evaluation, self.session_config, warm_start)

    def predicting(self, data: EvalSet | InputFn, saved: frozenset[str] | None) -> prediction.Prediction:
        """Returns the graph of predictions for the batches of a set or of an input function.

        Args:
            data: The set or the input function.
            saved: The names of the variables in the checkpoint that it is for.
        """
        with config.gin_errors():
            return prediction.compile_input(self.model, data, seed=self.seed, saved=saved)

    def served(
        self, receiver_fn: serving.ReceiverFn, saved: frozenset[str] | None, mode: str = ModeKeys.PREDICT
    ) -> prediction.Prediction:
        """Returns the graph of predictions for what a receiver is fed.

        Args:
            receiver_fn: Makes the receiver.
            saved: The names of the variables in the checkpoint that it is for.
            mode: What model_fn is called for.
        """
        with config.gin_errors():
            return prediction.compile_receiver(self.model, receiver_fn, seed=self.seed, saved=saved, mode=mode)

    def receiver_fn(self, data: EvalSet | InputFn) -> serving.ReceiverFn:
        """Returns a function that makes a receiver which is fed features as a set or training has them.

        Args:
            data: The set, or the training input function.
        """
        with config.gin_errors():
            structure = prediction.element_spec(self.model, data, seed=self.seed, mode=ModeKeys.TRAIN)
        return lambda: serving.receiver_of_spec(structure)

    def _detached(
        self, eval_set: EvalSet, reason: str, saved: frozenset[str], summaries: int = 0
    ) -> DetachedEvaluation:
        logging.info('`%s` is evaluated in a graph of its own, by a checkpoint: %s.', eval_set.stream, reason)
        return self.alone(eval_set, saved, summaries=summaries)

    def _compile(
        self,
        train_input_fn: Callable[..., Any] | None,
        sets: Mapping[str, EvalSet],
        *,
        alone: bool = False,
        saved: frozenset[str] | None = None,
    ) -> Compiled:
        with config.gin_errors():
            built = compiled.compile_graph(
                self.model,
                train_input_fn,
                list(sets.values()),
                seed=self.seed,
                alone=alone,
                saved=saved,
                require_equal_structures=self.require_equal_structures,
                restart=self.restart,
                accumulate=self.train_metrics,
                keyed=self.keyed,
                ordered_sums=self.ordered_sums,
                fuse=self.fuse != OFF,
                xla=self.xla,
                loss_per_example=self.loss_per_example,
                sizes_of=lambda of: sizes_of(of, self.session_config),
            )
        compiled.check_scaffolds(built)
        compiled.check_train_op(built, hooked=self.hooked)
        self._check_fused(built)
        return built

    def _check_fused(self, built: Compiled) -> None:
        """Says what is made run by run, and why, or refuses it."""
        reasons = [(tower.caller, tower.unfused) for tower in built.towers]
        if built.train is not None:
            reasons = [('training', built.train.unfused), *reasons]
        for caller, unfused in reasons:
            if unfused and self.fuse == REQUIRE:
                raise errors.ConfigurationError(
                    f"`RunConfig.fuse` is ['require'], and {caller} can't be fused: {'; '.join(unfused)}. Mend that, "
                    "or set it to 'auto'."
                )
            if unfused:
                logging.info('Each run of %s is one of the session: %s.', caller, '; '.join(unfused))


def sizes_of(cardinalities: Sequence[tf.Tensor], session_config: v1.ConfigProto | None = None) -> list[int]:
    """Returns how many elements Datasets have, by a session on the graph that is being built.

    Args:
        cardinalities: Scalars of the default graph.
        session_config: The configuration of sessions: the first one of a process decides for all how many threads share
            the work of an op.
    """
    if not cardinalities:
        return []
    with v1.Session(config=session_config or default_session_config()) as session:
        with contextlib.suppress(tf.errors.OpError):
            return [int(size) for size in session.run(list(cardinalities))]
        return [_size_of(cardinality, session) for cardinality in cardinalities]


def _size_of(cardinality: tf.Tensor, session: v1.Session) -> int:
    try:
        return int(session.run(cardinality))
    except tf.errors.OpError:  # it depends on a variable, or a table, that nobody has initialised yet
        return int(tf.data.UNKNOWN_CARDINALITY)


def metric_names(built: Compiled, apart: Mapping[str, DetachedEvaluation]) -> list[str]:
    """Returns the metrics of every set, as `set/metric`.

    Args:
        built: The graph of training.
        apart: The sets that have a graph of their own.
    """
    shared = [f'{stream}/{name}' for tower in built.towers for stream in tower.sources for name in tower.values]
    return shared + [f'{stream}/{name}' for stream, part in apart.items() for name in part.metrics(stream)]
