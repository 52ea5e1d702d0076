"""What `Experiment` takes, checked: each function returns the value of a setting, or raises a sentence about it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from framework import errors, input_functions, policies, run_dir
from framework.run_config import EvalSet, InputFn

EvalSets = Sequence[EvalSet] | Mapping[str, InputFn] | EvalSet | InputFn
LARGEST_SEED = 2**31 - 1

_EVAL_SETS_RULE = (
    'must be a list of EvalSet, a dict of input functions by name, or one input function. In gin: '
    '`Experiment.eval_sets = [@valid/EvalSet(), @test/EvalSet()]`, with the parentheses.'
)


def as_eval_sets(given: EvalSets) -> dict[str, EvalSet]:
    """Returns the evaluation sets by stream name, in their order.

    Args:
        given: What the user gave as `Experiment.eval_sets`.

    Raises:
        ConfigurationError: If it is no sets, or two bear one name.
    """
    if isinstance(given, EvalSet):
        sets = [given]
    elif isinstance(given, Mapping):
        sets = [EvalSet(name=name, input_fn=input_fn) for name, input_fn in given.items()]
    elif callable(given):
        sets = [EvalSet(input_fn=given)]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        sets = list(given)
    else:
        raise errors.ConfigurationTypeError(f'`Experiment.eval_sets` [{given!r}] {_EVAL_SETS_RULE}')
    for eval_set in sets:
        _check_eval_set(eval_set)
    streams = [s.stream for s in sets]
    for stream in streams:
        if streams.count(stream) > 1:
            raise errors.ConfigurationError(
                f'`EvalSet.name` [{stream}] is used by {streams.count(stream)} sets. Give each a name of its own.'
            )
    return dict(zip(streams, sets, strict=True))


def _check_eval_set(eval_set: Any) -> None:
    if not isinstance(eval_set, EvalSet):
        raise errors.ConfigurationTypeError(f'`Experiment.eval_sets` [{eval_set!r}] {_EVAL_SETS_RULE}')
    if eval_set.name is not None:
        run_dir.check_stream_name(eval_set.name)
    input_functions.check_input_fn(eval_set.input_fn, name=f'EvalSet.input_fn of {eval_set.stream}')


def agreed(name: str, own: Any, repeated: Any) -> Any:
    """Returns a setting that the experiment and its RunConfig both may say; raises where they differ.

    Args:
        name: Its name in `Experiment`.
        own: Its value there.
        repeated: Its value in `RunConfig`.
    """
    if own is not None and repeated is not None and own != repeated:
        other = 'model_dir' if name == 'model_dir' else 'tf_random_seed'
        raise errors.ConfigurationError(
            f'`Experiment.{name}` [{own}] and `RunConfig.{other}` [{repeated}] mean the same and differ. Set one of '
            'them (a `--model_dir` flag counts as the first).'
        )
    return repeated if own is None else own


def checked_directory(value: Any) -> str | None:
    """Returns `Experiment.model_dir` as a string; raises a `ConfigurationTypeError` unless it is a path or None."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if path is not None and not isinstance(path, str):
        raise errors.ConfigurationTypeError(f'`Experiment.model_dir` [{value!r}] must be a path, as a string.')
    return path


def checked_seed(seed: Any) -> int | None:
    """Returns `Experiment.seed`; raises a `ConfigurationError` unless it is None or an integer in range."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED):
        raise errors.ConfigurationError(f'`Experiment.seed` [{seed!r}] must be an integer from 0 to {LARGEST_SEED}.')
    return seed


def checked_evaluation_graph(value: Any) -> bool:
    """Returns whether `Experiment.evaluation_graph` wants all sets apart; raises for anything but its choices."""
    return errors.checked_choice('Experiment.evaluation_graph', value, ('auto', 'separate')) == 'separate'


def checked_instance(name: str, value: Any, kind: type) -> Any:
    """Returns a setting that is an object of ours or None; raises a `ConfigurationTypeError` for anything else."""
    if value is not None and not isinstance(value, kind):
        article = 'an' if kind.__name__[0] in 'AEIO' else 'a'
        raise errors.ConfigurationTypeError(
            f'`{name}` [{value!r}] must be {article} {kind.__name__}, or None. In gin: `{name} = '
            f'@{kind.__name__}()`, with the parentheses.'
        )
    return value


def checked_callable(name: str, value: Any) -> Any:
    """Returns a setting that is a function or None; raises a `ConfigurationTypeError` for anything else."""
    if value is not None and not callable(value):
        raise errors.ConfigurationTypeError(f'`{name}` [{value!r}] must be a function. In gin: `@my.function`.')
    return value


def checked_epochs(on_train_end: Any, train_epochs: int | None, in_epochs: Sequence[str]) -> bool:
    """Returns whether the training data starts again when it ends.

    Args:
        on_train_end: `Experiment.on_train_end`.
        train_epochs: `Experiment.train_epochs`.
        in_epochs: The sets, or the settings, whose period is one of epochs.

    Raises:
        ConfigurationError: For another choice, and for epochs where there are none.
    """
    restart = errors.checked_choice('Experiment.on_train_end', on_train_end, ('stop', 'restart')) == 'restart'
    counted = [f'`{name}`' for name in in_epochs]
    counted += [f'`Experiment.train_epochs` [{train_epochs}]'] if train_epochs is not None else []
    if counted and not restart:
        raise errors.ConfigurationError(
            f"{counted[0]} counts epochs, and with `Experiment.on_train_end` ['stop'] the training data has none: it "
            "ends once. Set `on_train_end` to 'restart', and let the input function read its data once, without "
            '`repeat()`.'
        )
    return restart


def checked_policies(keep_best: Any, early_stopping: Any, reduce_on_plateau: Any, commits: bool) -> policies.Policies:
    """Returns what a run follows.

    Args:
        keep_best: `Experiment.keep_best`.
        early_stopping: `Experiment.early_stopping`.
        reduce_on_plateau: `Experiment.reduce_on_plateau`.
        commits: Whether there are commits.

    Raises:
        ConfigurationError: If they don't go together, or with a run without commits.
    """
    chosen = policies.agreed(
        checked_instance('Experiment.keep_best', keep_best, policies.KeepBest),
        checked_instance('Experiment.early_stopping', early_stopping, policies.EarlyStopping),
        checked_instance('Experiment.reduce_on_plateau', reduce_on_plateau, policies.ReduceOnPlateau),
    )
    if chosen.keep_best is not None and not commits:
        raise errors.ConfigurationError(
            '`KeepBest` saves by commits, and `RunConfig` has switched them off. Set '
            '`RunConfig.save_checkpoints_steps` or `RunConfig.save_checkpoints_secs`.'
        )
    return chosen


def checked_sanity_batches(value: Any) -> int:
    """Returns `Experiment.sanity_batches`; raises a `ConfigurationError` unless it is 0 or a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise errors.ConfigurationError(f'`Experiment.sanity_batches` [{value!r}] must be 0 or a positive integer.')
    return value


def checked_bool(name: str, value: Any) -> bool:
    """Returns a setting that is True or False; raises a `ConfigurationTypeError` for anything else."""
    if not isinstance(value, bool):
        raise errors.ConfigurationTypeError(f'`{name}` [{value!r}] must be True or False.')
    return value
