"""Where training is."""

import dataclasses

from framework.reporting.rows import Metrics


@dataclasses.dataclass
class Position:
    """Where training is. It moves with every train run.

    Attributes:
        step: The global step.
        previous_step: The global step before the newest train run; equal to `step` before any.
        runs: Train runs from the beginning: a run may move the global step by any number, also by none.
        loss: The loss of the newest train run of this process, None before any.
        exhausted: Whether the training data ended.
        epochs: How often it ended and began again.
        epoch_start: The global step at which the running epoch began.
        elements: How many elements of the training data were read since it began.
        metrics: The metrics of the newest log period of this process.
        not_finite: Whether the newest loss was not finite, and the run shall stop for that.
    """

    step: int = 0
    previous_step: int = 0
    runs: int = 0
    loss: float | None = None
    exhausted: bool = False
    epochs: int = 0
    epoch_start: int = 0
    elements: int = 0
    metrics: Metrics = dataclasses.field(default_factory=dict)
    not_finite: bool = False
