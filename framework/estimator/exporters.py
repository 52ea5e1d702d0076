"""Exporters: what writes a model out after an evaluation, and which of its exports stay."""

import inspect
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.reporting import values

_LENGTH = 10  # of a directory's name: seconds since the epoch
_MODES = ('min', 'max')
Comparison = Callable[..., bool]


class Exporter:
    """Writes a model out in some form."""

    @property
    def name(self) -> str:
        """The directory below `<model_dir>/export/` that its exports are written to."""
        raise NotImplementedError(f'`{type(self).__name__}.name` is not implemented.')

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """Exports the model of a checkpoint.

        Args:
            estimator: The Estimator.
            export_path: The directory to write into.
            checkpoint_path: The prefix of the checkpoint's files.
            eval_result: The metrics of the evaluation of that checkpoint.
            is_the_final_export: Whether training has ended, whatever the reason.

        Returns:
            The directory of the export, None where there is none.
        """
        raise NotImplementedError(f'`{type(self).__name__}.export` is not implemented.')


class _SavedModelExporter(Exporter):
    """Exports a SavedModel.

    Args:
        name: See `Exporter.name`.
        serving_input_receiver_fn: Makes the receiver that the model is fed by.
        assets_extra: Path below `assets.extra/` to the path of the file that is copied there.
        as_text: Whether the SavedModel's graph is written as text.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ):
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text

    @property
    def name(self) -> str:
        """See `Exporter`."""
        return self._name

    def _export(self, estimator: Any, export_path: str, checkpoint_path: str) -> Any:
        return estimator.export_saved_model(
            export_path,
            self._receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )


class FinalExporter(_SavedModelExporter):
    """Exports once, when training has ended."""

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """See `Exporter`."""
        if not is_the_final_export:
            return None
        v1.logging.info('Performing the final export in the end of training.')
        return self._export(estimator, export_path, checkpoint_path)


class LatestExporter(_SavedModelExporter):
    """Exports after every evaluation, and keeps the newest exports.

    Args:
        name: As for `FinalExporter`.
        serving_input_receiver_fn: The same.
        assets_extra: The same.
        as_text: The same.
        exports_to_keep: How many stay, None for all.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ):
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._keep = _checked_keep(exports_to_keep)

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """See `Exporter`."""
        exported = self._export(estimator, export_path, checkpoint_path)
        _remove_old(export_path, self._keep)
        return exported


def _loss_smaller(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
    for which, result in (('best', best_eval_result), ('current', current_eval_result)):
        if not result or 'loss' not in result:
            raise errors.ConfigurationError(
                f'{which}_eval_result cannot be empty or no loss is found in it. Given: {result}. Name the metric to '
                "compare: `BestExporter(monitor='accuracy', mode='max')`."
            )
    return bool(best_eval_result['loss'] > current_eval_result['loss'])


class BestExporter(_SavedModelExporter):
    """Exports whenever an evaluation is better than all before, and keeps the newest of these exports.

    What was best is in the commits of the run: after a restart only a better model is exported. Event files are not
    read.

    Args:
        name: As for `FinalExporter`.
        serving_input_receiver_fn: The same; required.
        event_file_pattern: Taken for old code's sake, and not used.
        compare_fn: `compare_fn(best_eval_result, current_eval_result)` says whether the current metrics are better.
        assets_extra: As for `FinalExporter`.
        as_text: The same.
        exports_to_keep: How many stay, None for all.
        monitor: In place of `compare_fn`: the metric to compare.
        mode: `min` or `max`: which of its values are better.
    """

    def __init__(
        self,
        name: str = 'best_exporter',
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = 'eval/*.tfevents.*',
        compare_fn: Comparison = _loss_smaller,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
        *,
        monitor: str | None = None,
        mode: str | None = None,
    ):
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        del event_file_pattern
        self._keep = _checked_keep(exports_to_keep)
        self._better = _checked_comparison(compare_fn) if monitor is None else _by_metric(monitor, mode)
        self._best: dict[str, Any] | None = None

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """See `Exporter`."""
        if self._best is not None and not self._better(
            best_eval_result=self._best, current_eval_result=dict(eval_result or {})
        ):
            return None
        v1.logging.info('Performing best model export.')
        exported = self._export(estimator, export_path, checkpoint_path)
        self._best = dict(eval_result or {})  # only now: an export that failed is made again
        _remove_old(export_path, self._keep)
        return exported

    def state(self) -> Any:
        """Returns the best metrics as JSON has them, for the commits."""
        return None if self._best is None else values.metrics_to_json(self._best)

    def take(self, state: Any) -> None:
        """Takes the best metrics of an earlier process."""
        self._best = None if state is None else dict(values.metrics_from_json(state))


def _checked_comparison(compare_fn: Any) -> Comparison:
    if compare_fn is None:
        raise errors.ConfigurationError('`compare_fn` must not be None.')
    named = tuple(inspect.signature(compare_fn).parameters)
    for argument in ('best_eval_result', 'current_eval_result'):
        if argument not in named:
            raise errors.ConfigurationError(f'compare_fn ({compare_fn}) must include {argument} argument.')
    if unexpected := [name for name in named if name not in ('best_eval_result', 'current_eval_result')]:
        raise errors.ConfigurationError(f'compare_fn ({compare_fn}) has following not expected args: {unexpected}')
    return compare_fn


def _by_metric(monitor: str, mode: str | None) -> Comparison:
    errors.checked_choice('BestExporter.mode', mode, _MODES)

    def better(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
        if monitor not in current_eval_result:
            raise errors.ConfigurationError(
                f'`BestExporter.monitor` [{monitor}]: no such metric. {errors.nearest(monitor, current_eval_result)}'
            )
        best, current = best_eval_result.get(monitor), current_eval_result[monitor]
        return best is None or bool(current > best if mode == 'max' else current < best)

    return better


def _checked_keep(exports_to_keep: int | None) -> int | None:
    if exports_to_keep is not None and exports_to_keep <= 0:
        raise errors.ConfigurationError(
            f'`exports_to_keep`, if provided, must be positive number. Given [{exports_to_keep}].'
        )
    return exports_to_keep


def _remove_old(directory: str, keep: int | None) -> None:
    """Removes exports but the newest; what has another name than an export is left alone."""
    if keep is None or not os.path.isdir(directory):
        return
    exports = sorted(name for name in os.listdir(directory) if len(name) == _LENGTH and name.isdigit())
    for name in exports[:-keep]:
        try:
            shutil.rmtree(os.path.join(directory, name))
        except OSError as error:
            logging.warning('Can not delete %s recursively: %s', os.path.join(directory, name), error)
