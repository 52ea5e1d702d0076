"""`train_and_evaluate`: one session, in which training and evaluations take turns."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_dir, topology
from framework.estimator import training
from framework.estimator.estimator import Estimator
from framework.estimator.exporters import BestExporter, LatestExporter
from framework.estimator.input_calls import with_tensors
from framework.estimator.log_lines import GLOBAL_STEP
from framework.estimator.run_config import RunConfig
from framework.estimator.specs import EvalSpec, TrainSpec
from framework.reporting.rows import PassRow
from framework.run_config import EvalSet
from framework.session.exports import Exports

_EVERY_STEPS = 1000  # where the user says nothing of when evaluations are made


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec | Sequence[EvalSpec] | Mapping[str, EvalSpec]
) -> tuple[Any, Any]:
    """Trains to `train_spec.max_steps`, with evaluations in the same session, and one at the end whatever ended it.

    Evaluations are made every `RunConfig.eval_every_n_steps` steps. Where that isn't set: at checkpoints, not sooner
    after one another than `EvalSpec.throttle_secs`, if the user has set when checkpoints are made, or the throttle;
    else every 1000 steps. A model that has reached `max_steps` before is evaluated and exported once more.

    Args:
        estimator: The Estimator.
        train_spec: What is trained on.
        eval_spec: What is evaluated on: a spec, a list of specs, or a dict of specs by name.

    Returns:
        The metrics of the last evaluation, and what the exporters returned after it. Of several specs dicts of these by
        name, an unnamed one being `eval`.

    Raises:
        ConfigurationTypeError: If an argument is of another type.
        ConfigurationError: If two specs have one name, or nothing would be saved.
    """
    specs = _specs(eval_spec)
    if not isinstance(estimator, Estimator):
        raise _wrong_type('estimator', 'Estimator', estimator)
    if not isinstance(train_spec, TrainSpec):
        raise _wrong_type('train_spec', 'TrainSpec', train_spec)
    config = estimator.config
    _check_task(config)
    if not (config.save_checkpoints_steps or config.save_checkpoints_secs):
        raise errors.ConfigurationError(training.NO_SAVER)
    v1.logging.info('Running training and evaluation locally (non-distributed).')
    exports = _Exports(estimator, specs)
    schedule = _schedule(config, specs)
    names = {stream: spec.name for stream, spec in specs.items()}
    passes = training.Passes(_sets(specs), schedule, exports, names)
    hooks = list(train_spec.hooks)
    estimator._input_fn = train_spec.input_fn
    training.train(
        estimator, train_spec.input_fn, hooks, train_spec.max_steps, list(train_spec.saving_listeners), passes
    )
    results = {
        spec.name or run_dir.UNNAMED_SET: (exports.metrics.get(stream), exports.results[stream])
        for stream, spec in specs.items()
    }
    if isinstance(eval_spec, EvalSpec):
        return next(iter(results.values()))
    return (
        {stream: metrics for stream, (metrics, _) in results.items()},
        {stream: exported for stream, (_, exported) in results.items()},
    )


def _check_task(config: RunConfig) -> None:
    if config.task_type != topology.EVALUATOR:
        return
    if config.task_id > 0:
        raise errors.ConfigurationError(
            'For distributed training, there can only be one `evaluator` task (with task id 0). Given task id '
            f'{config.task_id}'
        )
    raise errors.ConfigurationError(
        'TF_CONFIG makes this process the evaluator of a cluster, and clusters are not here yet. Unset TF_CONFIG to '
        'train and evaluate in one process.'
    )


def _specs(eval_spec: Any) -> dict[str, EvalSpec]:
    """Returns the specs by stream."""
    if isinstance(eval_spec, EvalSpec):
        given = [eval_spec]
    elif isinstance(eval_spec, Mapping):
        given = [_named(name, spec) for name, spec in eval_spec.items()]
    elif isinstance(eval_spec, Sequence) and not isinstance(eval_spec, str) and eval_spec:
        given = list(eval_spec)
    else:
        raise _wrong_type('eval_spec', 'EvalSpec', eval_spec)
    for spec in given:
        if not isinstance(spec, EvalSpec):
            raise _wrong_type('eval_spec', 'EvalSpec', spec)
    streams = [_stream(spec.name) for spec in given]
    for stream in streams:
        if streams.count(stream) > 1:
            raise errors.ConfigurationError(
                f'`EvalSpec.name` [{stream}] is used by {streams.count(stream)} specs. Give each a name of its own.'
            )
    return dict(zip(streams, given, strict=True))


def _stream(name: str | None) -> str:
    """Returns what the run calls a spec: its name, unless the run itself uses that name."""
    if not name:
        return run_dir.UNNAMED_SET
    return f'{name}_set' if name in (run_dir.TRAIN, run_dir.UNNAMED_SET) else name


def _named(name: str, spec: Any) -> Any:
    if not isinstance(spec, EvalSpec):
        return spec
    if spec.name is not None and spec.name != name:
        raise errors.ConfigurationError(
            f'`eval_spec` [{name}]: the spec is named [{spec.name}]. Leave out `EvalSpec.name` in a dict.'
        )
    return spec._replace(name=name)


def _wrong_type(argument: str, kind: str, value: Any) -> errors.ConfigurationTypeError:
    return errors.ConfigurationTypeError(f'`{argument}` must have type `tf.estimator.{kind}`. Got: {type(value)}')


def _sets(specs: Mapping[str, EvalSpec]) -> dict[str, EvalSet]:
    for stream in specs:
        if stream != run_dir.UNNAMED_SET:
            run_dir.check_stream_name(stream)
    return {
        stream: EvalSet(
            input_fn=with_tensors(spec.input_fn),
            name=None if stream == run_dir.UNNAMED_SET else stream,
            steps=spec.steps,
            hooks=spec.hooks,
        )
        for stream, spec in specs.items()
    }


def _schedule(config: RunConfig, specs: Mapping[str, EvalSpec]) -> dict[str, Any]:
    """Returns the arguments of a schedule that say when evaluations are made."""
    periods: dict[str, int | None] = {}
    secs: dict[str, float] = {}
    throttle: dict[str, float] = {}
    for stream, spec in specs.items():
        throttle_secs = spec.throttle_secs if 'throttle_secs' in spec.given else 0
        by_checkpoint = config.sets_saving or 'throttle_secs' in spec.given
        if config.eval_every_n_steps is not None or not by_checkpoint:
            periods[stream] = config.eval_every_n_steps or _EVERY_STEPS
        elif config.save_checkpoints_steps:
            periods[stream] = config.save_checkpoints_steps
            throttle[stream] = throttle_secs
        else:
            periods[stream] = None
            secs[stream] = max(config.save_checkpoints_secs, throttle_secs)
    return {'periods': periods, 'second_periods': secs, 'throttle_secs': throttle}


class _Exports(Exports):
    """Calls the exporters of each spec when the weights of its evaluation are saved.

    Attributes:
        metrics: By stream the metrics of the last evaluation.
        results: By stream what its exporters returned the last time that they were called.
    """

    _NAME = 'exporters'

    def __init__(self, estimator: Estimator, specs: Mapping[str, EvalSpec]):
        self._estimator = estimator
        self._specs = specs
        self._new: set[str] = set()  # streams whose exporters haven't been called since the last evaluation
        self._final = False
        self._told: set[str] = set()
        self.metrics: dict[str, dict[str, Any]] = {}
        self.results: dict[str, list[Any]] = {stream: [] for stream in specs}

    def saw(self, row: PassRow) -> None:
        """See `Exports`."""
        if row.stream in self._specs:
            self.metrics[row.stream] = {**row.metrics, GLOBAL_STEP: np.int64(row.step)}
            self._new.add(row.stream)
            self._tell_of_default(row)

    def _tell_of_default(self, row: PassRow) -> None:
        """Warns once of a set that may have more batches than the default of `EvalSpec.steps`."""
        spec = self._specs[row.stream]
        if row.batches == spec.steps and 'steps' not in spec.given and row.stream not in self._told:
            self._told.add(row.stream)
            v1.logging.warning(
                'The evaluation of `%s` read %d batches, the default of `EvalSpec.steps`: what its data has beyond '
                'them counts for nothing. `EvalSpec(steps=None)` reads all.',
                row.stream,
                row.batches,
            )

    def wants_commit(self, final: bool) -> bool:
        """See `Exports`."""
        has_exporters = any(spec.exporters for spec in self._specs.values())
        return has_exporters and bool(self._new or (final and not self._final and self.metrics))

    def export(self, checkpoint: str, final: bool) -> None:
        """See `Exports`."""
        ends = final and not self._final
        for stream, spec in self._specs.items():
            if stream in self.metrics and (stream in self._new or ends):
                again = stream not in self._new
                self.results[stream] = [
                    result
                    for exporter, before in zip(spec.exporters, self._before(stream), strict=True)
                    for result in [self._exported(exporter, stream, checkpoint, final, again, before)]
                ]
        self._new.clear()
        self._final = final

    def _before(self, stream: str) -> list[Any]:
        return self.results[stream] or [None] * len(self._specs[stream].exporters)

    def _exported(self, exporter: Any, stream: str, checkpoint: str, final: bool, again: bool, before: Any) -> Any:
        if again and isinstance(exporter, (LatestExporter, BestExporter)):
            return before  # this evaluation was exported before it was known to be the last
        path = os.path.join(self._estimator.model_dir, 'export', exporter.name)
        return exporter.export(
            estimator=self._estimator,
            export_path=tf.compat.as_str_any(path),
            checkpoint_path=checkpoint,
            eval_result=self.metrics[stream],
            is_the_final_export=final,
        )

    def get(self) -> Mapping[str, Any]:
        """See `Exports`."""
        best = {
            f'{stream}/{exporter.name}': exporter.state()
            for stream, spec in self._specs.items()
            for exporter in spec.exporters
            if isinstance(exporter, BestExporter)
        }
        return {self._NAME: best}

    def set(self, state: Mapping[str, Any]) -> None:
        """See `Exports`."""
        best = state.get(self._NAME, {})
        for stream, spec in self._specs.items():
            for exporter in spec.exporters:
                if isinstance(exporter, BestExporter):
                    exporter.take(best.get(f'{stream}/{exporter.name}'))
