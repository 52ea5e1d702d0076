"""What people see of a run: on a terminal, as a terminal shows it, and in a log."""

import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import pyte
import pytest
import tensorflow as tf

from framework import EvalSet, Experiment, RunConfig, errors, testing
from framework.reporting import progress, rows, terminal
from framework.spec import ModeKeys


class Screen:
    """A terminal of 72 columns and 8 lines."""

    def __init__(self, columns=72):
        self._screen = pyte.Screen(columns, 8)
        self._stream = pyte.Stream(self._screen)
        self.columns = columns

    def write(self, text):
        self._stream.feed(text.replace('\n', '\r\n'))  # as a terminal does with what programs write

    def flush(self):
        pass

    @property
    def lines(self):
        return [line.rstrip() for line in self._screen.display if line.strip()]


class Clock:
    def __init__(self):
        self._now = 100.0

    def __call__(self):
        return self._now

    def advance(self, secs):
        self._now += secs


class Footer(terminal.Footer):
    def __init__(self, screen, clock):
        super().__init__(screen, clock)
        self._columns = screen.columns

    @property
    def width(self):
        return self._columns


@pytest.fixture
def clock():
    return Clock()


def bar(screen, clock):
    footer = Footer(screen, clock)
    return footer, terminal.BarWriter(footer, clock, refresh_secs=None)


def train(writer, step, steps=600):
    writer.write_progress(rows.ProgressRow('train', step, steps))


# The bar.


def test_the_bar_tells_how_far_the_run_is(clock):
    screen = Screen()
    _, writer = bar(screen, clock)
    train(writer, 150)
    writer.draw()
    assert screen.lines == ['step 150/600  25 % ━━━━━━━━━━╺━━━━━━━━━━━━━━━━━━━━━━━━━━━━━']
    writer.write_step(rows.StepRow(200, 0.12345, 153.21, 600))
    train(writer, 300)
    writer.draw()
    assert screen.lines == ['step 300/600  50 %  153 steps/s  0:00:02 left  loss 0.1235 ━━━━━╸━━━━━']


def test_a_pass_has_a_line_of_its_own_that_goes_with_it(clock):
    screen = Screen()
    _, writer = bar(screen, clock)
    train(writer, 600)
    writer.write_progress(rows.ProgressRow('valid', 600, 600, 0, 24))
    clock.advance(3)
    writer.draw()
    assert screen.lines[1:] == ['valid  24 batches  0:00:03']  # in one run of the session: nobody knows how far it is
    writer.write_progress(rows.ProgressRow('valid', 600, 600, 12, 24))
    writer.draw()
    assert screen.lines[1:] == ['valid  batch 12/24  0:00:03 ━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━━━━━━━━━━']
    writer.write_progress(rows.ProgressRow('valid', 600, 600, 13, None))
    writer.draw()
    assert screen.lines[1:] == ['valid  batch 13  0:00:03']
    writer.write_pass(rows.PassRow(600, 'valid', {}, 24, 24, 3.0))
    writer.draw()
    assert len(screen.lines) == 1 and screen.lines[0].startswith('step 600/600  100 %')


def test_batches_that_are_only_tried_out_are_no_pass(clock):
    screen = Screen()
    _, writer = bar(screen, clock)
    writer.write_progress(rows.ProgressRow('valid', 0, 600, 1, 24))
    writer.draw()
    assert screen.lines == []


@pytest.mark.parametrize(
    ('columns', 'line'),
    [
        (50, 'step 300/600  50 %  153 steps/s  0:00:02 left'),
        (40, 'step 300/600  50 %  153 steps/s'),
        (20, 'step 300/600  50 %'),
        (8, 'step 30'),
    ],
)
def test_a_narrow_terminal_shows_what_fits(clock, columns, line):
    screen = Screen(columns)
    _, writer = bar(screen, clock)
    writer.write_step(rows.StepRow(200, 0.12345, 153.21, 600))
    train(writer, 300)
    writer.draw()
    assert screen.lines == [line]


def test_a_run_without_a_known_end_has_no_bar(clock):
    screen = Screen()
    _, writer = bar(screen, clock)
    train(writer, 300, None)
    writer.write_step(rows.StepRow(200, float('nan'), 0.5))
    writer.draw()
    assert screen.lines == ['step 300  0.5 steps/s  loss nan']


def test_lines_of_the_log_stand_above_the_bar_and_are_whole(clock):
    screen = Screen()
    footer, writer = bar(screen, clock)
    handler = logging.StreamHandler(screen)
    handlers = list(logging.root.handlers)
    logging.root.addHandler(handler)
    try:
        footer.open()
        train(writer, 150)
        writer.write_progress(rows.ProgressRow('valid', 150, 600, 0, 24))
        writer.draw()
        logging.getLogger('anything').warning('a')
        logging.getLogger('another').warning('a second line')
        writer.draw()  # while others may still be writing: nothing is drawn
        assert screen.lines == ['a', 'a second line']
        clock.advance(1)
        writer.draw()
        assert screen.lines[:2] == ['a', 'a second line']
        assert [line.split()[0] for line in screen.lines[2:]] == ['step', 'valid']
        footer.close()
        assert screen.lines == ['a', 'a second line']
        logging.getLogger('anything').warning('b')
        assert screen.lines == ['a', 'a second line', 'b']
    finally:
        logging.root.removeHandler(handler)
    assert logging.root.handlers == handlers


def test_the_bar_at_the_bottom_of_the_screen_moves_with_the_lines(clock):
    screen = Screen()
    _, writer = bar(screen, clock)
    train(writer, 150)
    writer.write_progress(rows.ProgressRow('valid', 150, 600, 0, 24))
    for number in range(20):
        writer.draw()
        screen.write(f'\r\x1b[Jline {number}\n')
    writer.draw()
    assert screen.lines[:-2] == [f'line {number}' for number in range(14, 20)]
    assert [line.split()[0] for line in screen.lines[-2:]] == ['step', 'valid']


def test_a_terminal_that_has_gone_ends_nothing(clock):
    class Gone(Screen):
        def write(self, text):
            raise OSError(5, 'Input/output error')

    footer, writer = bar(Gone(), clock)
    train(writer, 1)
    writer.draw()
    footer.close()


def test_the_thread_ends_with_the_run():
    writer = terminal.BarWriter(Footer(Screen(), lambda: 0.0), refresh_secs=0.01)
    handlers = list(logging.root.handlers)
    train(writer, 1)
    assert any(thread.name == 'progress' for thread in threading.enumerate())
    writer.close()
    writer.close()
    assert not any(thread.name == 'progress' for thread in threading.enumerate())
    assert logging.root.handlers == handlers


# Which of them there is.


@pytest.mark.parametrize(
    ('setting', 'is_terminal', 'term', 'expected'),
    [
        ('auto', True, 'xterm', ['ConsoleWriter', 'BarWriter']),
        ('auto', True, 'dumb', ['ConsoleWriter']),
        ('auto', False, 'xterm', ['ConsoleWriter']),
        ('bar', False, 'xterm', ['ConsoleWriter', 'BarWriter']),
        ('plain', True, 'xterm', ['ConsoleWriter']),
        ('off', True, 'xterm', []),
    ],
)
def test_there_is_a_bar_on_a_terminal(monkeypatch, setting, is_terminal, term, expected):
    monkeypatch.setenv('TERM', term)
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: is_terminal)
    assert [type(writer).__name__ for writer in terminal.console(setting)] == expected


def test_an_unknown_setting_is_named():
    with pytest.raises(errors.ConfigurationError, match=r"`Experiment.progress` \['baar'\].*Did you mean `bar`"):
        experiment(None, progress='baar')


# Whole runs.


def input_fn(mode):
    dataset = tf.data.Dataset.from_tensor_slices(testing.blobs(40))
    return (dataset.repeat() if mode == ModeKeys.TRAIN else dataset).batch(4)


def experiment(directory, **settings):
    return Experiment(
        model_fn=testing.linear_model_fn,
        train_input_fn=input_fn,
        eval_sets=[EvalSet(name='valid', input_fn=input_fn)],
        model_dir=directory,
        **{
            'train_steps': 4,
            'eval_every_steps': 2,
            'seed': 1,
            'run_config': RunConfig(log_step_count_steps=2, save_checkpoints_steps=4),
            **settings,
        },
    )


def _plain(message):
    """Numbers, times and paths as letters, so that a snapshot says what is told and not what came out."""
    message = re.sub(r'\S*/model.ckpt', 'PATH/model.ckpt', message)
    message = re.sub(r'\d+\.\d+(e-?\d+)?', 'N', message)
    return re.sub(r'\d+:\d\d:\d\d', 'T', re.sub(r' {2,}', ' ', re.sub(r'-{3,}', '--', message)))


SNAPSHOT = """\
Seed 1: random draws, initial values, and Python and NumPy while the graph is built.
Calling model_fn.
Done calling model_fn.
Calling model_fn.
Done calling model_fn.
Schedule: Train to step 4; evaluate `valid` every 2 steps and at the end; commit every 4 steps and at the end.
Audit: nothing stands in the way of the same bits after a kill.
train: many steps in one run of the session.
valid: many batches in one run of the session.
N ops in the graph of training.
+--+
| stream | computed in | batch | batches | elements | metrics |
|--+--+--+--+--+--|
| train | training | 4 | endless | ([float32 ?, 4], [int64 | loss |
| | | | | ?]) | |
|--+--+--+--+--+--|
| valid | tower_0 | 4 | 10 | ([float32 ?, 4], [int64 | accuracy, loss, |
| | | | | ?]) | loss_per_example |
+--+
+--+
| name | shape | count | trainable | read by |
|--+--+--+--+--|
| global_step | [] | 1 | no | |
| weights | [4, 2] | 8 | yes | train, valid |
|--+--+--+--+--|
| total, trainable | | 8 | | |
| total | | 9 | | |
+--+
Trying out 2 batches of every evaluation.
Saved step 0 into PATH/model.ckpt-0.
step 2/4: loss = N, N steps/s, ETA T
step 2: valid: accuracy = N, loss = N, loss_per_example = N (10 batches, 40 examples, N s)
step 4/4: loss = N, N steps/s, ETA T
step 4: valid: accuracy = N, loss = N, loss_per_example = N (10 batches, 40 examples, N s)
Saved step 4 into PATH/model.ckpt-4.
Result:
+--+
| stream | metric | value |
|--+--+--|
| valid | accuracy | N |
| valid | loss | N |
| valid | loss_per_example | N |
|--+--+--|
| train | loss | N |
+--+

stopped reached step 4 of 4 (done)
step 4
time N s: start_up N, train N, hooks N, evaluate N, commit N, other N
"""


def test_a_log_has_every_line_once(tmp_path, caplog):
    caplog.set_level('INFO', logger='absl')
    experiment(str(tmp_path / 'd')).train_and_evaluate()
    lines = [line.rstrip() for message in caplog.messages for line in message.rstrip('\n').split('\n')]
    told = re.sub(r'\d+ ops', 'N ops', _plain('\n'.join(lines) + '\n'))
    told = '\n'.join(line.rstrip() for line in told.split('\n'))
    assert told == SNAPSHOT
    assert not [
        message for message in caplog.messages if caplog.messages.count(message) > 1 and 'model_fn' not in message
    ]


def test_nothing_of_a_run_is_told_where_that_is_off(tmp_path, caplog):
    caplog.set_level('INFO', logger='absl')
    experiment(str(tmp_path / 'd'), progress='off').train_and_evaluate()
    assert not [message for message in caplog.messages if message.startswith('step ')]


PROGRAM = """
import time

import framework
import tensorflow as tf
from absl import app, logging
from framework import testing


def slowly(x):
    time.sleep(0.02)
    return x


def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices(testing.blobs(40)).repeat().batch(4, drop_remainder=True)
    slow = lambda x, y: (tf.ensure_shape(tf.py_function(slowly, [x], tf.float32), [4, 4]), y)
    return dataset.map(slow)


def main(_):
    logging.set_verbosity(logging.INFO)
    config = framework.RunConfig(log_step_count_steps=20, save_checkpoints_steps=1000, fuse='off')
    experiment = framework.Experiment(
        model_fn=testing.linear_model_fn, train_input_fn=input_fn, train_steps=STEPS, model_dir=DIR, run_config=config
    )
    raise SystemExit(experiment.train().exit_code)


app.run(main)
"""


def _on_a_terminal(directory, steps, at_bar=lambda process: None):
    """Runs the program on a pseudo terminal, and returns its exit code and the screens that it showed."""
    master, slave = pty.openpty()
    program = PROGRAM.replace('DIR', repr(str(directory))).replace('STEPS', str(steps))
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, 'PYTHONPATH': root, 'TERM': 'xterm', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    process = subprocess.Popen(
        [sys.executable, '-c', program],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    timer = threading.Timer(90, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    screen = pyte.Screen(200, 100)
    stream, shown = pyte.ByteStream(screen), []
    try:
        while True:
            try:
                content = os.read(master, 65536)
            except OSError:  # the program has ended
                break
            if not content:
                break
            stream.feed(content)
            lines = [line.rstrip() for line in screen.display if line.strip()]
            if not shown and lines and re.match(r'step \d+/', lines[-1]):
                at_bar(process)
            if lines and re.match(r'step \d+/', lines[-1]):
                shown.append(lines)
        return process.wait(timeout=30), shown, [line.rstrip() for line in screen.display if line.strip()], screen
    finally:
        timer.cancel()
        os.close(master)


def test_a_terminal_shows_the_bar_under_the_lines_and_none_at_the_end(tmp_path):
    code, shown, last, screen = _on_a_terminal(tmp_path / 'd', 60)
    assert code == 0
    assert len(shown) > 2  # it moved
    assert not [line for line in last if re.match(r'step \d+/60  ', line)]
    told = [line for line in last if 'progress.py' in line]
    assert [re.search(r'\] (step \d+/60): loss', line)[1] for line in told] == [
        'step 20/60',
        'step 40/60',
        'step 60/60',
    ]
    assert all(re.match(r'I\d{4} ', line) for line in told)
    assert not screen.cursor.hidden


def test_a_signal_leaves_the_terminal_as_it_was(tmp_path):
    code, shown, last, screen = _on_a_terminal(
        tmp_path / 'd', 5000, lambda process: os.kill(process.pid, signal.SIGINT)
    )
    assert code == 128 + signal.SIGINT
    assert shown
    assert not [line for line in last if re.match(r'step \d+/5000  ', line)]
    assert any('the same command goes on from there' in line for line in last)
    assert not screen.cursor.hidden


def test_the_bar_changes_no_lines(tmp_path, caplog):
    caplog.set_level('INFO', logger='absl')
    stream = Screen()
    clock = Clock()
    told = []
    for number, writers in enumerate(([], [bar(stream, clock)[1]])):
        caplog.clear()
        for writer in [progress.ConsoleWriter(), *writers]:
            writer.write_step(rows.StepRow(200, 0.5, 10.0, 600))
            writer.write_pass(rows.PassRow(200, 'valid', {'loss': 1.0}, 1, 1, 0.5))
        told.append((number, list(caplog.messages)))
    assert told[0][1] == told[1][1]
