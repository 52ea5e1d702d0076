"""A bar over the run at the bottom of a terminal, and one in a long pass, under the lines of the log."""

import contextlib
import datetime
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from framework.reporting import rows, values, writers
from framework.reporting.progress import ConsoleWriter

_REFRESH_SECS = 0.25
_QUIET_SECS = 0.05  # after a line of the log, which other handlers may still be writing
_USUAL_WIDTH = 80
_NARROW = 60  # columns, below which there is no room for a bar
_CLEAR = '\r\x1b[J'  # from the beginning of the line to the end of the screen


AUTO, BAR, PLAIN, OFF = PROGRESS = ('auto', 'bar', 'plain', 'off')


def console(progress: str) -> list[writers.Writer]:
    """Returns the writers that tell people of a run while it goes on.

    Args:
        progress: `plain`: a line of the log per log period and pass; `bar`: a bar over the run beside these; `auto`: a
            bar where the standard error stream is a terminal; `off`: nothing.
    """
    if progress == OFF:
        return []
    is_terminal = sys.stderr.isatty() and os.environ.get('TERM') != 'dumb'
    has_bar = progress == BAR or (progress == AUTO and is_terminal)
    return [ConsoleWriter(), *([BarWriter(Footer(sys.stderr))] if has_bar else [])]


class Footer:
    """Lines at the bottom of a terminal, under whatever else is written to it.

    The cursor stays at the beginning of the first of them, so that what others write takes their place: until they are
    shown again, under it. Handlers of Python's logging find the lines gone already.

    Args:
        stream: The terminal.
        clock: Seconds, monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self._stream = stream
        self._clock = clock
        self._lock = threading.RLock()
        self._shown = False
        self._quiet_until = 0.0
        self._handler = _MakesRoom(self)

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return columns or _USUAL_WIDTH

    def open(self) -> None:
        """Makes handlers of the log find room from now on."""
        # Before those that write, for which there is no public way.
        logging.root.handlers.insert(0, self._handler)

    def show(self, lines: Sequence[str]) -> None:
        """Shows lines in place of those before, unless the log is being written.

        Args:
            lines: Each no longer than the terminal is wide.
        """
        with self._lock:
            if self._clock() < self._quiet_until:
                return
            up = f'\x1b[{len(lines) - 1}A' if len(lines) > 1 else ''
            self._write(_CLEAR + '\n'.join(lines) + up + '\r')
            self._shown = True

    def make_room(self) -> None:
        """Takes the lines away for a moment, in which others write."""
        with self._lock:
            self._quiet_until = self._clock() + _QUIET_SECS
            if self._shown:
                self._write(_CLEAR)
                self._shown = False

    def close(self) -> None:
        """Takes the lines away."""
        with contextlib.suppress(ValueError):
            logging.root.handlers.remove(self._handler)
        self.make_room()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that has gone must not end a training
            self._stream.write(text)
            self._stream.flush()


class _MakesRoom(logging.Handler):
    """Makes room for those that write a record."""

    def __init__(self, footer: Footer):
        super().__init__()
        self._footer = footer

    def emit(self, record: logging.LogRecord) -> None:
        """Makes room."""
        del record
        self._footer.make_room()


class BarWriter(writers.Writer):
    """Shows where the run is. It is drawn by a thread, so that it also lives in a long run of the session.

    Args:
        footer: Where it is shown.
        clock: Seconds, monotonic.
        refresh_secs: Seconds between two drawings; None: never, for whoever calls `draw`.
    """

    wants_progress = True

    def __init__(
        self,
        footer: Footer,
        clock: Callable[[], float] = time.monotonic,
        refresh_secs: float | None = _REFRESH_SECS,
    ):
        self._footer = footer
        self._clock = clock
        self._refresh_secs = refresh_secs
        self._training: rows.ProgressRow | None = None
        self._pass: rows.ProgressRow | None = None
        self._pass_since = 0.0
        self._line: rows.StepRow | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def write_progress(self, row: rows.ProgressRow) -> None:
        """Takes note of where the run is; the first time, the bar appears."""
        if row.batches is None:
            self._training = row
        else:
            if row.batches == 0:
                self._pass_since = self._clock()
            if row.batches == 0 or self._pass is not None:  # else some batches are only tried out
                self._pass = row
        if self._thread is None and self._refresh_secs is not None:
            self._footer.open()
            self._thread = threading.Thread(target=self._draw_often, name='progress', daemon=True)
            self._thread.start()

    def write_step(self, row: rows.StepRow) -> None:
        """Takes note of the rate and the loss."""
        self._line = row

    def write_pass(self, row: rows.PassRow) -> None:
        """Ends the line of the pass."""
        del row
        self._pass = None

    def draw(self) -> None:
        """Draws once."""
        lines = self._lines(self._footer.width)
        if lines:
            self._footer.show(lines)

    def close(self) -> None:
        """Takes the bar away."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._footer.close()

    def _draw_often(self) -> None:
        while not self._stop.wait(self._refresh_secs):
            self.draw()

    def _lines(self, width: int) -> list[str]:
        now, training = self._pass, self._training
        lines = []
        if training is not None:
            lines.append(_line(width, training.step, training.train_steps, self._of_training(training)))
        if now is not None:
            lines.append(_line(width, now.batches or 0, now.size if now.batches else None, self._of_pass(now)))
        return lines

    def _of_training(self, row: rows.ProgressRow) -> list[str]:
        known = row.train_steps is not None
        texts = [f'step {row.step}/{row.train_steps}' if known else f'step {row.step}']
        if row.train_steps:
            texts.append(f'{100 * row.step // row.train_steps} %')
        if self._line is not None:
            texts.append(f'{self._line.steps_per_sec:.3g} steps/s')
            if row.train_steps is not None and self._line.steps_per_sec > 0:
                left = max(row.train_steps - row.step, 0) / self._line.steps_per_sec
                texts.append(f'{datetime.timedelta(seconds=round(left))} left')
            texts.append(f'loss {values.to_text(self._line.loss)}')
        return texts

    def _of_pass(self, row: rows.ProgressRow) -> list[str]:
        """Tells of a pass; how far it is within one run of the session nobody knows, and it is not made up."""
        secs = f'{datetime.timedelta(seconds=int(self._clock() - self._pass_since))}'
        if row.batches:
            of = '' if row.size is None else f'/{row.size}'
            return [row.stream, f'batch {row.batches}{of}', secs]
        return [row.stream, *([] if row.size is None else [f'{row.size} batches']), secs]


def _line(width: int, done: int, total: int | None, texts: Sequence[str]) -> str:
    """Returns a bar, where the total is known and there is room, and texts, the last of which are left out first."""
    text = _fitting(texts, width - 1)
    room = width - len(text) - 3
    if not total or width < _NARROW or room < 10:
        return text
    grid = Table.grid(padding=(0, 1))
    grid.add_row(text, ProgressBar(total=total, completed=min(done, total), width=min(room, 40)))
    content = io.StringIO()
    console = Console(file=content, width=width, force_terminal=True, color_system='standard', legacy_windows=False)
    console.print(grid, end='')
    return content.getvalue().rstrip('\n')


def _fitting(texts: Sequence[str], width: int) -> str:
    for count in range(len(texts), 0, -1):
        if len(text := '  '.join(texts[:count])) <= width:
            return text
    return texts[0][:width]
