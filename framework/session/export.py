"""Exports a model as a SavedModel, for servers and for other programs."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, run_config
from framework.export_outputs import EvalOutput, ExportOutput, SupervisedOutput, TrainOutput
from framework.graph import movement
from framework.graph.prediction import Prediction
from framework.session import loading, opening, reading
from framework.spec import ModeKeys

_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_EXTRA = 'assets.extra'
_TAGS = {ModeKeys.PREDICT: tf.saved_model.SERVING, ModeKeys.TRAIN: 'train', ModeKeys.EVAL: 'eval'}


def export_saved_model(
    prediction: Prediction,
    checkpoint: str,
    base_dir: str | os.PathLike[str],
    *,
    assets_extra: Mapping[str, str | os.PathLike[str]] | None = None,
    clock: Callable[[], float] = time.time,
    session_config: v1.ConfigProto | None = None,
    others: Sequence[Prediction] = (),
    as_text: bool = False,
    strip_default_attrs: bool = True,
) -> str:
    """Writes a SavedModel, and returns its directory: `base_dir` and the seconds since the epoch.

    It is written under another name and renamed, so that it is there as a whole or not at all. It has a signature for
    each of `EstimatorSpec.export_outputs` that the receiver can feed, and for each alternative of the receiver
    (`<alternative>:<signature>`). Tables and local variables are initialised when it is loaded.

    Args:
        prediction: A graph with a receiver, which was not used for predictions. It may be exported again.
        checkpoint: The prefix of the checkpoint's files.
        base_dir: The directory of the exports, made where it is missing.
        assets_extra: Files that go into `assets.extra/`: the path there to the path of the file.
        clock: Returns the seconds since the epoch. Where that second has an export, the next free one is taken.
        session_config: The session's configuration, None for the default.
        others: Graphs of the same model for other modes, which are loaded by the tags `train` and `eval`.
        as_text: Whether the graphs are written as text.
        strip_default_attrs: Whether attributes with default values are left out, so that more versions of TensorFlow
            can read them.

    Raises:
        ConfigurationError: If no signature can be served, or an extra file can't be copied.
        CheckpointError: If the checkpoint isn't there, is damaged or of another model.
    """
    graphs = [prediction, *others]
    for graph in graphs:
        _check_graph(graph)
    extra = _checked_extra(assets_extra or {})
    config = session_config or run_config.default_session_config()
    told: list[str] = []
    with _directory(os.fspath(base_dir), clock) as (temporary, target):
        builder = v1.saved_model.Builder(temporary)
        for graph in graphs:
            told += _add(builder, graph, checkpoint, config, strip_default_attrs, with_variables=graph is prediction)
        builder.save(as_text)
        _copy_extra(extra, os.path.join(temporary, _EXTRA))
        os.rename(temporary, target)
    logging.info('Exported to %s: %s.', target, ', '.join(told))
    return target


def _check_graph(prediction: Prediction) -> None:
    if prediction.receiver is None:
        raise errors.ConfigurationError('An export needs a graph with a receiver. Build it for one.')
    if prediction.graph.finalized:
        raise errors.ConfigurationError('This graph has been used for predictions. Build another one for the export.')


def _add(
    builder: v1.saved_model.Builder,
    prediction: Prediction,
    checkpoint: str,
    config: v1.ConfigProto,
    strip_default_attrs: bool,
    with_variables: bool,
) -> list[str]:
    """Adds a graph to a SavedModel, and returns the names of its signatures."""
    with prediction.graph.as_default(), v1.Session(graph=prediction.graph, config=config) as session:
        signatures = _signatures(prediction.receiver, _outputs(prediction))
        scaffold = loading.completed_scaffold(prediction, freeze=False)
        opening.restore(session, scaffold.saver, checkpoint)
        common = {
            'signature_def_map': dict(signatures),
            'assets_collection': v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            'main_op': prediction.init,
            'strip_default_attrs': strip_default_attrs,
            'saver': scaffold.saver,
        }
        tags = [_TAGS[prediction.spec.mode]]
        try:
            if with_variables:
                builder.add_meta_graph_and_variables(session, tags, **common)
            else:
                builder.add_meta_graph(tags, **common)
        finally:
            # The builder leaves these behind, and would refuse the graph the next time.
            session.graph.clear_collection(v1.saved_model.ASSETS_KEY)
            session.graph.clear_collection(v1.saved_model.MAIN_OP_KEY)
    return list(signatures)


def _outputs(prediction: Prediction) -> Mapping[str, ExportOutput]:
    """Returns what the signatures of a graph return."""
    spec = prediction.spec
    if spec.mode == ModeKeys.PREDICT:
        return spec.export_outputs
    kind = TrainOutput if spec.mode == ModeKeys.TRAIN else EvalOutput
    return {spec.mode: kind(spec.loss, spec.predictions or None, spec.eval_metric_ops)}


def newest_step(base_dir: str | os.PathLike[str]) -> int | None:
    """Returns the global step of the newest export in a directory, None where there is none.

    Args:
        base_dir: The directory of the exports.
    """
    exports = [name for name in os.listdir(base_dir) if name.isdigit()] if os.path.isdir(base_dir) else []
    if not exports:
        return None
    return reading.global_step(os.path.join(base_dir, max(exports, key=int), 'variables', 'variables'))


# Signatures.


def _signatures(receiver: Any, outputs: Mapping[str, ExportOutput]) -> dict[str, Any]:
    """Returns the signatures that can be served, and tells of the others."""
    made: dict[str, Any] = {}
    excluded: dict[str, str] = {}
    for prefix, fed in _groups(receiver):
        for name, output in outputs.items():
            try:
                made[f'{prefix}{name}'] = _signature(output, fed)
            except ValueError as error:
                excluded[f'{prefix}{name}'] = str(error)
    told = '; '.join(f'`{name}`: {reason}' for name, reason in excluded.items())
    if not made:
        raise errors.ConfigurationError(
            f'`export_outputs` [{", ".join(outputs)}] has nothing that can be served. {told}'
        )
    if excluded:
        logging.warning('Not exported: %s', told)
    if _DEFAULT_SIGNATURE not in made and not _is_supervised(outputs):
        logging.warning('The export has no signature `%s`.', _DEFAULT_SIGNATURE)
    return made


def _is_supervised(outputs: Mapping[str, ExportOutput]) -> bool:
    return all(isinstance(output, SupervisedOutput) for output in outputs.values())


def _groups(receiver: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields what can be fed, each with the prefix of its signatures."""
    yield '', receiver.receiver_tensors
    for name, fed in (getattr(receiver, 'receiver_tensors_alternatives', None) or {}).items():
        yield f'{name}:', fed


def _signature(output: ExportOutput, fed: Mapping[str, Any]) -> Any:
    signature = output.as_signature_def(fed)
    if lacking := _unfed(output.tensors().values(), fed.values()):
        raise errors.ConfigurationError(
            f'its outputs need [{", ".join(sorted(lacking))}], and it is fed [{", ".join(fed)}] only.'
        )
    if not isinstance(output, SupervisedOutput) and not v1.saved_model.is_valid_signature(signature):
        raise errors.ConfigurationError(f'its tensors are not those of a signature of [{signature.method_name}].')
    return signature


def _unfed(outputs: Iterable[tf.Tensor], fed: Iterable[Any]) -> set[str]:
    """Returns the names of the placeholders that the outputs depend on otherwise than by what is fed."""
    known = {tensor.name for tensor in tf.nest.flatten(list(fed), expand_composites=True)}
    return {op.name for op in movement.ancestors(outputs, fed=known) if op.type == 'Placeholder'}


# Files.


def _checked_extra(assets_extra: Mapping[str, str | os.PathLike[str]]) -> dict[str, str]:
    extra = {os.path.normpath(place): os.fspath(source) for place, source in assets_extra.items()}
    for place, source in extra.items():
        if os.path.isabs(place) or place.split(os.sep)[0] in (os.pardir, os.curdir):
            raise errors.ConfigurationError(
                f'`assets_extra` [{place}] must be a path of a file below `{_EXTRA}/`: relative, and without `..`.'
            )
        if not os.path.isfile(source):
            raise errors.ConfigurationError(f'`assets_extra[{place}]` [{source}] is no file.')
    return extra


def _copy_extra(extra: Mapping[str, str], directory: str) -> None:
    for place, source in extra.items():
        target = os.path.join(directory, place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)


@contextlib.contextmanager
def _directory(base_dir: str, clock: Callable[[], float]) -> Iterator[tuple[str, str]]:
    """Yields a directory to write to and the name to give it; removes what an error leaves there."""
    made_base = not os.path.isdir(base_dir)
    os.makedirs(base_dir, exist_ok=True)
    temporary, target = _claimed(base_dir, int(clock()))
    try:
        yield temporary, target
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if made_base:
            with contextlib.suppress(OSError):
                os.rmdir(base_dir)
        raise


def _claimed(base_dir: str, second: int) -> tuple[str, str]:
    """Makes the temporary directory of the first second that is free, and that no other export is about to take."""
    while True:
        target = os.path.join(base_dir, str(second))
        temporary = os.path.join(base_dir, f'temp-{second}')
        with contextlib.suppress(FileExistsError):
            os.mkdir(temporary)
            if not os.path.exists(target):
                return temporary, target
            os.rmdir(temporary)
        second += 1
