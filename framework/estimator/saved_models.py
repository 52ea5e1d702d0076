"""Calls of export: a SavedModel of a checkpoint."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from framework import errors
from framework.session import checkpoints, holding, opening
from framework.session import export as exporting
from framework.spec import ModeKeys

_ORDER = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def export(
    estimator: Any,
    base_dir: str | os.PathLike[str],
    receivers: Mapping[str, Callable[[], Any]],
    assets_extra: Mapping[str, str] | None,
    as_text: bool,
    checkpoint_path: str | None,
    strip_default_attrs: bool = True,
) -> bytes:
    """Writes a SavedModel, and returns its path.

    Args:
        estimator: The Estimator.
        base_dir: The directory of exports.
        receivers: Mode to what makes its receiver.
        assets_extra: Path below `assets.extra/` to the path of the file that is copied there.
        as_text: Whether the graph is written as text.
        checkpoint_path: The prefix of the checkpoint's files, None for the newest.
        strip_default_attrs: Whether attributes with default values are left out.
    """
    modes = [mode for mode in _ORDER if receivers.get(mode)]
    if not modes:
        raise errors.ConfigurationError(f'No valid modes for exporting found. Got {list(receivers)}.')
    checkpoint = checkpoint_path or estimator.latest_checkpoint() or _warm_start(estimator)
    if not checkpoint:
        raise errors.ConfigurationError(f"Couldn't find trained model at {estimator.model_dir}.")
    with holding.held(lambda: checkpoint) as held:
        saved = opening.saved_names(held)
        graphs = estimator._graphs(estimator.config.tf_random_seed)
        first, *others = [graphs.served(receivers[mode], saved, mode) for mode in modes]
        target = exporting.export_saved_model(
            first,
            held,
            base_dir,
            assets_extra=assets_extra,
            session_config=estimator._engine_config().session_proto,
            others=others,
            as_text=as_text,
            strip_default_attrs=strip_default_attrs,
        )
    return target.encode()


def _warm_start(estimator: Any) -> str | None:
    """Returns the checkpoint that a model without one of its own begins with."""
    settings = estimator._warm_start_settings
    return None if settings is None else checkpoints.resolve(settings.ckpt_to_initialize_from)
