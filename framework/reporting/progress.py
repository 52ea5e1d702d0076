"""Tells the progress of a run in the log, a line per event."""

import datetime

from absl import logging

from framework.reporting import rows, values, writers


class ConsoleWriter(writers.Writer):
    """Logs a line per log period of training and one per pass, through absl at level INFO.

    Where the lines go is the user's: no handler, level or stream is touched.
    """

    def write_step(self, row: rows.StepRow) -> None:
        """Logs `step 200/600: loss = 0.1234, 153.2 steps/s, ETA 0:00:03`, as far as the end is known."""
        step = f'{row.step}' if row.train_steps is None else f'{row.step}/{row.train_steps}'
        metrics = [f'{name} = {text}' for name, text in values.metrics_to_text(row.metrics).items()]
        parts = [f'loss = {values.to_text(row.loss)}', *metrics, f'{_rate(row.steps_per_sec)} steps/s']
        if row.eta_secs is not None:
            parts.append(f'ETA {datetime.timedelta(seconds=round(row.eta_secs))}')
        logging.info('step %s: %s', step, ', '.join(parts))

    def write_pass(self, row: rows.PassRow) -> None:
        """Logs `step 200: valid: accuracy = 0.9612, loss = 0.1432 (12 batches, 360 examples, 0.21 s)`."""
        metrics = ', '.join(f'{name} = {text}' for name, text in values.metrics_to_text(row.metrics).items())
        batches, examples = _count(row.batches, 'batch', 'batches'), _count(row.examples, 'example', 'examples')
        logging.info('step %d: %s: %s (%s, %s, %.2f s)', row.step, row.stream, metrics, batches, examples, row.secs)


def _rate(steps_per_sec: float) -> str:
    return f'{steps_per_sec:.1f}' if steps_per_sec >= 10 else f'{steps_per_sec:.3g}'


def _count(number: int, singular: str, plural: str) -> str:
    return f'{number} {singular if number == 1 else plural}'
