"""Whether a run would go on to the bit as the one whose commit it finds."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence

from absl import logging

from framework import errors
from framework.graph import fingerprint, sources
from framework.graph.calls import Compiled
from framework.graph.random_ops.audit import Finding

EXACT, BEST_EFFORT, OFF = 'exact', 'best_effort', 'off'
LEVELS = (EXACT, BEST_EFFORT, OFF)
AUTO, FORCE, NEVER = 'auto', 'force', 'never'
RESUMES = (AUTO, FORCE, NEVER)
DATA = 'training data'
_NUMERICS = 'numerics: '
_SHOWN = 3


def identity(built: Compiled, seed: int | None, numerics: Mapping[str, object]) -> dict[str, str]:
    """Returns what must be the same for the same bits to come.

    Evaluation sets, cadences, and the step to reach are no part of it.

    Args:
        built: The graph of training.
        seed: The run's seed, None where it has none.
        numerics: What decides how numbers are rounded: versions, threads, the processor.
    """
    found = {'seed': str(seed)}
    if built.train is not None:
        spec = built.train.spec
        inputs = sources.scope(built.train.source.stream)
        found['graph of training'] = fingerprint.fingerprint(built.graph, [spec.train_op, spec.loss], without=inputs)
        # Without how we repeat it, which is the schedule's business.
        found[DATA] = fingerprint.fingerprint(built.graph, built.train.source.pipeline)
    return found | {f'{_NUMERICS}{name}': str(value) for name, value in sorted(numerics.items())}


@dataclasses.dataclass(frozen=True)
class Change:
    """What is not as it was when a commit was made.

    Attributes:
        parts: Lines about the parts of the identity that differ, and decide.
        numerics: Lines about how numbers are rounded.
        configuration: Lines of the gin configuration that went (`-`) and came (`+`).
    """

    parts: Sequence[str] = ()
    numerics: Sequence[str] = ()
    configuration: Sequence[str] = ()


def change(before: Mapping[str, str], now: Mapping[str, str], texts: tuple[str, str]) -> Change:
    """Returns what differs.

    Args:
        before: The identity of the commit; empty where it has none.
        now: The identity of this start.
        texts: The gin configuration of the start before and of this one.
    """
    lines = {name: _line(name, before[name], now[name]) for name in now if before.get(name, now[name]) != now[name]}
    configuration = [
        line
        for line in difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), lineterm='', n=0)
        if line[:1] in '+-' and line[:3] not in ('+++', '---') and line[1:].strip() and line[1:2] != '#'
    ]
    return Change(
        [line for name, line in lines.items() if not name.startswith(_NUMERICS)],
        [line for name, line in lines.items() if name.startswith(_NUMERICS)],
        configuration,
    )


def _line(name: str, before: str, now: str) -> str:
    known = name.startswith(_NUMERICS) or name == 'seed'
    return f'{name}: {before}, now {now}' if known else f'{name}: not the same'


def check(found: Change, directory: str, level: str, resume: str) -> None:
    """Refuses to go on where other bits would come, or says what has changed.

    Args:
        found: What has changed.
        directory: The run directory.
        level: `exact` refuses also where numbers may be rounded otherwise, `off` refuses nothing.
        resume: `force` goes on whatever has changed.

    Raises:
        RunDirectoryError: If the run would not go on as the one before.
    """
    decisive = [*found.parts, *(found.numerics if level == EXACT else ())]
    text = '\n'.join(f'  {line}' for line in [*found.parts, *found.numerics, *found.configuration])
    if decisive and level != OFF and resume != FORCE:
        raise errors.RunDirectoryError(
            f'`{directory}` holds a run that this start would not continue as it began:\n{text}\nTake back what has '
            'changed, start in a new run directory, or go on all the same: `--resume=force`.'
        )
    if text:
        logging.warning('Changed since the start before, and going on:\n%s', text)


def check_settings(level: str, xla: str | None) -> None:
    """Refuses what never gives the same bits again where they are asked for.

    Args:
        level: How much is asked for.
        xla: `RunConfig.xla`.

    Raises:
        ConfigurationError: If the two contradict each other.
    """
    if level == EXACT and xla is not None:
        raise errors.ConfigurationError(
            f"`Experiment.reproducible` is ['{EXACT}'], and what XLA compiles rounds and draws otherwise than single "
            f"steps do: `RunConfig.xla` ['{xla}']. Leave one of them out."
        )


def check_audit(findings: Sequence[Finding], level: str) -> None:
    """Refuses, or tells of, what is not sure to come again to the bit after a kill.

    Args:
        findings: What the audit of the graph found.
        level: `exact` refuses; `best_effort` says it in a line.

    Raises:
        ConfigurationError: At level `exact`, if there is something.
    """
    found = [finding for finding in findings if not finding.allowed]
    if not found or level == OFF:
        return
    if level == EXACT:
        lines = '\n'.join(f'  {finding}' for finding in found)
        raise errors.ConfigurationError(
            f"`Experiment.reproducible` ['exact'] needs a graph that does the same again after a kill:\n{lines}\n"
            "Replace them, or set `reproducible` to 'best_effort'."
        )
    shown = '; '.join(map(str, found[:_SHOWN]))
    more = f'; and {len(found) - _SHOWN} more' if len(found) > _SHOWN else ''
    logging.warning('Not sure to come again to the bit after a kill: %s%s.', shown, more)
