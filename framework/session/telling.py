"""Who is told of a training, and what a start tells of itself."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import config, errors, run_dir
from framework.graph import drawing
from framework.graph.calls import Compiled
from framework.reporting import hparams, tables, tensorboard, terminal, values, writers
from framework.reporting.rows import StartRow
from framework.session import description
from framework.session.detached import DetachedEvaluation

WriterFn = Callable[[run_dir.RunDir], writers.Writer]


def checked_writers(given: Any) -> tuple[WriterFn, ...]:
    """Returns `Experiment.writers`; raises a `ConfigurationTypeError` for anything but a list of functions."""
    rule = (
        'must be a list of functions that take the run directory (`framework.run_dir.RunDir`) and return a Writer, '
        'such as the class of one. In gin: `Experiment.writers = [@CsvWriter]`, without parentheses.'
    )
    if not isinstance(given, list | tuple):
        raise errors.ConfigurationTypeError(f'`Experiment.writers` [{given!r}] {rule}')
    for one in given:
        if isinstance(one, writers.Writer) or not callable(one):
            raise errors.ConfigurationTypeError(f'`Experiment.writers` [{one!r}] {rule}')
    return tuple(given)


def made_writers(functions: Sequence[WriterFn], directory: run_dir.RunDir) -> list[writers.Writer]:
    """Returns the user's writers for a start.

    Args:
        functions: `Experiment.writers`.
        directory: The run directory.

    Raises:
        ConfigurationTypeError: If a function returns something else.
    """
    made = [function(directory) for function in functions]
    for function, one in zip(functions, made, strict=True):
        if not isinstance(one, writers.Writer):
            raise errors.ConfigurationTypeError(
                f'`Experiment.writers` [{function!r}] returned [{one!r}], and must return a `framework.Writer`.'
            )
    return made


def training_writers(
    directory: run_dir.RunDir,
    own_tags: Collection[str] = (),
    known: Mapping[str, str] | None = None,
    console: Sequence[writers.Writer] | None = None,
    events_dir: Callable[[str], str] | None = None,
) -> list[writers.Writer]:
    """Returns the writers that every training has.

    Args:
        directory: The run directory.
        own_tags: The tags of the model's own scalars of training.
        known: What the event files say of the run already, see `EventWriter`.
        console: Who tells people of the progress; None: a line of the log now and then.
        events_dir: Returns the directory of a stream's event files; None: that of the run directory.
    """
    return [
        *(terminal.console(terminal.PLAIN) if console is None else console),
        writers.MetricsWriter(directory.metrics_file),
        writers.TimelineWriter(directory.timeline_file),
        tensorboard.EventWriter(events_dir or directory.events_dir, own_tags, known=known),
        hparams.HparamsWriter(directory.hparams, begun=bool(known)),
    ]


def summary_tags(built: Compiled) -> set[str]:
    """Returns the tags of the model's own scalars, as far as the graph tells."""
    summaries = () if built.train is None else built.train.collections.get(v1.GraphKeys.SUMMARIES)
    tags = [tf.get_static_value(summary.op.inputs[0]) for summary in summaries if summary.op.type == 'ScalarSummary']
    return {tag.item().decode() for tag in tags if tag is not None}


def start_row(
    built: Compiled,
    apart: Mapping[str, DetachedEvaluation],
    *,
    step: int,
    seed: int | None,
    params: Any,
    facts: Mapping[str, Any],
) -> StartRow:
    """Returns what a start tells of itself.

    Args:
        built: The graph of training.
        apart: The sets that have a graph of their own.
        step: The global step that it goes on from.
        seed: The seed of the run, None where it has none.
        params: What functions that name `params` are given.
        facts: What `provenance.collect` found.
    """
    return StartRow(
        step=step,
        hparams=_hparams(seed, params, config.bound_values()),
        texts={name: text for name, text in _texts(built, facts).items() if text},
        charts=_charts(built, apart.values()),
        graph=drawing.definition(built.graph).SerializeToString(),
    )


def _texts(built: Compiled, facts: Mapping[str, Any]) -> dict[str, str]:
    return {
        'configuration': config.config_text(),
        'command': shlex.join(facts['argv']),
        'git_diff': facts['git_diff'] or '',
        'parameters': tables.parameter_table(description.parameters(built)),
    }


def _charts(built: Compiled, apart: Iterable[DetachedEvaluation]) -> list[str]:
    """Returns the metrics that are one number each, sorted."""
    training = built.train.metrics if built.train is not None else None
    named = [{} if training is None else training.values, *(tower.values for tower in built.towers)]
    named += [tower.values for part in apart for tower in part.towers]
    scalars = {name for values in named for name, value in values.items() if _is_number(value)}
    return sorted((scalars | {'loss'}) - {'global_step'})


def _is_number(value: tf.Tensor) -> bool:
    return value.shape.rank in (0, None) and (value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool)


def _hparams(seed: int | None, params: Any, bound: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Returns what was configured: bindings, in which macros have their values; `params` if it is a dict; the seed."""
    given = {f'params.{name}': value for name, value in params.items()} if isinstance(params, Mapping) else {}
    of_run = {} if seed is None else {'Experiment.seed': seed}
    found = {**of_run, **given, **{name: _macro(value, bound) for name, value in bound.items()}}
    return {name: _plain(value) for name, value in sorted(found.items())}


def _macro(value: Any, bound: Mapping[str, Any]) -> Any:
    """Returns the value of a macro, and any other value as it is."""
    return bound.get(repr(value)[1:], value) if repr(value).startswith('%') else value


def _plain(value: Any) -> bool | int | float | str:
    value = values.plain(value)
    return value if isinstance(value, bool | int | float | str) else repr(value)
