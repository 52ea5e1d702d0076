"""Signals, sent to this very process."""

import os
import signal
import threading

import pytest

from framework.session import signals


@pytest.fixture
def before():
    """Handlers that note what reaches them, in place of those that would end the process."""
    noted = []
    old = {number: signal.signal(number, lambda n, _: noted.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    yield noted
    for number, handler in old.items():
        signal.signal(number, handler)


def _send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(('number', 'code', 'name'), [(signal.SIGINT, 130, 'SIGINT'), (signal.SIGTERM, 143, 'SIGTERM')])
def test_the_first_signal_is_noted_and_nothing_else_happens(before, number, code, name):
    with signals.StopSignals() as stop:
        _send(number)
    assert stop.came() and stop.received == number
    assert stop.exit_code == code
    assert stop.sentence == f'{name} received'
    assert before == []


@pytest.mark.parametrize('second', [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_does_what_it_did_before(before, second):
    with signals.StopSignals() as stop:
        _send(signal.SIGTERM)
        _send(second)
        assert before == [second]
        assert stop.received == signal.SIGTERM


def test_a_second_interrupt_raises_as_python_does():
    with signals.StopSignals(), pytest.raises(KeyboardInterrupt):
        _send(signal.SIGINT)
        _send(signal.SIGINT)


@pytest.mark.parametrize('sent', [(), (signal.SIGTERM,)])
def test_handlers_are_restored_at_the_end(before, sent):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with signals.StopSignals():
        assert signal.getsignal(signal.SIGINT) is not handlers[0]
        for number in sent:
            _send(number)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_handlers_are_restored_when_an_error_escapes(before):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match='mine'), signals.StopSignals():
        raise ValueError('mine')
    assert signal.getsignal(signal.SIGTERM) is handler


def test_without_a_signal_nothing_came():
    with signals.StopSignals() as stop:
        pass
    assert (stop.came(), stop.received, stop.exit_code, stop.sentence) == (False, None, 0, '')


def test_a_signal_that_was_ignored_stays_ignored(before):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals.StopSignals() as stop:
        _send(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert not stop.came()


def test_a_handler_that_was_not_set_from_python_gives_way_to_the_default(before, monkeypatch):
    real = signal.signal
    monkeypatch.setattr(signal, 'signal', lambda number, handler: [real(number, handler), None][1])
    with signals.StopSignals() as stop:
        _send(signal.SIGTERM)
    assert stop.came()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_outside_the_main_thread_nothing_changes(before):
    seen = []

    def work():
        with signals.StopSignals() as stop:
            seen.append((signal.getsignal(signal.SIGTERM), stop.came()))

    handler = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(handler, False)]
