"""The rows that a run fills and the reporters tell: one frozen dataclass a kind of event.

`step` is always the global step after the event; `secs` are wall seconds; `stream` is `train` or the name of an
evaluation set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MetricValue = Any  # float, int, bytes or numpy array: whatever the metric's value tensor holds
Metrics = Mapping[str, MetricValue]


@dataclass(frozen=True)
class ParameterRow:
    """A variable of the model.

    Attributes:
        name: Its name in the checkpoint.
        shape: Its static shape; None stands for a size that isn't known, or for a shape of unknown rank.
        dtype: The name of its dtype.
        trainable: Whether optimizers see it.
        streams: The streams in one graph that read it; empty where that was not asked.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str
    trainable: bool
    streams: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamRow:
    """A stream of an experiment.

    Attributes:
        stream: `train` or the name of an evaluation set.
        place: Where it is computed: `training`, a tower that sets share, a graph of its own.
        structure: The structure of its elements, as text.
        metrics: The names of its metrics.
        batch: The examples of a batch, of which the last may have fewer; None where that is not known.
        batches: How many there are, in an epoch or a pass, as text: a number, `endless` or `unknown`.
        unfused: Why each of its runs is one of the session, as sentences; empty where many are made in one. None where
            that was not asked for.
    """

    stream: str
    place: str
    structure: str
    metrics: tuple[str, ...]
    batch: int | None = None
    batches: str = 'unknown'
    unfused: tuple[str, ...] | None = None


@dataclass(frozen=True)
class StartRow:
    """A start of a run: what it is.

    Attributes:
        step: The global step that it goes on from, 0 for a fresh run. Rows of later steps come again: who keeps those
            of a start before, which did not get to save itself, leaves them out.
        hparams: What was configured, by name: the bindings of gin, `params` as far as it is a dict, and the seed.
        texts: For people, by name: `configuration`, `command`, `git_diff`, `parameters`; those that there are.
        charts: The metrics that are one number each, of training and of all sets.
        graph: The serialized GraphDef, without the values of large constants.
    """

    step: int
    hparams: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    charts: Sequence[str] = ()
    graph: bytes = b''


@dataclass(frozen=True)
class StepRow:
    """The end of a log period of training.

    Attributes:
        step: The global step.
        loss: The loss of the newest train run.
        steps_per_sec: Steps per second of training time in the period, passes and commits left out.
        train_steps: The step to reach, None when only the end of the data or a hook ends the run.
        metrics: The metrics of the training call, accumulated over the period.
    """

    step: int
    loss: float
    steps_per_sec: float
    train_steps: int | None = None
    metrics: Metrics = field(default_factory=dict)

    @property
    def eta_secs(self) -> float | None:
        """Seconds of training left at the period's rate; None when no end is known."""
        if self.train_steps is None or self.steps_per_sec <= 0:
            return None
        return max(self.train_steps - self.step, 0) / self.steps_per_sec


@dataclass(frozen=True)
class ProgressRow:
    """Where a run is, told now and then to those who want to know.

    Attributes:
        stream: `train`, or the set of the pass that goes on.
        step: The global step.
        train_steps: The step to reach, None when only the end of the data or a hook ends the run.
        batches: The batches of the pass that are read, 0 at its beginning; None in training.
        size: The batches of the pass, None where nobody knows.
    """

    stream: str
    step: int
    train_steps: int | None = None
    batches: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class SummaryRow:
    """Summaries of a train run.

    Attributes:
        step: The global step.
        loss: The loss of that run.
        summary: The serialized merged `Summary` proto, empty when the model has none.
    """

    step: int
    loss: float
    summary: bytes = b''


@dataclass(frozen=True)
class PassRow:
    """A finished pass over one evaluation set.

    Attributes:
        step: The global step of the weights.
        stream: The name of the set.
        metrics: The values by metric name, `loss` (the mean over batches) among them.
        batches: The number of batches read.
        examples: The number of examples read.
        secs: The duration of the pass.
        summary: Serialized `Summary` of its first batch: images, histograms, curves that model_fn collected.
    """

    step: int
    stream: str
    metrics: Metrics
    batches: int
    examples: int
    secs: float
    summary: bytes = b''


@dataclass(frozen=True)
class PhaseRow:
    """One phase of the run, as `timeline.jsonl` keeps it.

    Attributes:
        phase: `train`, `evaluate` or `commit`.
        step: The global step at its end.
        secs: Its duration.
        stream: `train`, the set's name, or None for a commit.
        steps: Train steps made, or batches of the pass; 0 for a commit.
        examples: Examples read.
        digest: The beginning of a hash of the weights of a commit; None for other phases.
    """

    phase: str
    step: int
    secs: float
    stream: str | None = None
    steps: int = 0
    examples: int = 0
    digest: str | None = None


@dataclass(frozen=True)
class Best:
    """The best checkpoints of a run by a metric.

    Attributes:
        metric: `set/metric`.
        mode: `max` or `min`.
        kept: Their steps and values, best first.
        checkpoint: The prefix of the best one's files.
    """

    metric: str
    mode: str
    kept: Sequence[tuple[int, float]]
    checkpoint: str

    @property
    def step(self) -> int:
        """The step of the best one."""
        return self.kept[0][0]

    @property
    def value(self) -> float:
        """The value of the best one."""
        return self.kept[0][1]


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        status: `done` (the step was reached), `exhausted` (the training data ended), `stopped` (a hook asked for it),
            `interrupted` (a signal) or `failed`.
        stop_reason: The same as a sentence.
        global_step: The last global step.
        metrics: Per evaluation set the metrics of its last pass, if that was made in this process or is recorded at
            `global_step`; a pass that an earlier process made at an older step is left out. `train` holds the last
            `loss` of this process, and the metrics of its last log period.
        timing: Seconds by kind: `start_up`, `train`, `hooks` (of training, of which there are any), `evaluate`,
            `commit`, `other`, and all of them: `total`. An evaluation alone has `evaluate` only.
        exit_code: What the binary exits with.
        best: The best checkpoints, None where the run keeps none or had no pass yet.
        history: Per stream its steps and metrics over time as lists of equal length: `history['valid']['step']` and
            `history['valid']['loss']`; of the whole run, earlier processes included. None stands where a metric was
            missing. `train` has a value per log period.
    """

    status: str
    stop_reason: str
    global_step: int
    metrics: Mapping[str, Metrics] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    exit_code: int = 0
    best: Best | None = None
    history: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class WarmStartRow:
    """A variable that a warm start loads, or not.

    Attributes:
        name: Its name, without the parts of a partitioned one.
        source: What it is called in the checkpoint, empty if it isn't asked for.
        shape: As in `ParameterRow`.
        loaded: Whether it begins with the checkpoint's value.
        why: Why not; or how, where its value is put together.
    """

    name: str
    source: str
    shape: tuple[int | None, ...] | None
    loaded: bool
    why: str = ''
