"""Hooks around runs that no monitored session sees, compared with those that one does."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EvalSet, Experiment, errors, testing
from framework.session import hooks


class _Ask(v1.train.SessionRunHook):
    """Asks for fetches, feeds and options; keeps what comes."""

    def __init__(self, fetches=None, feed_dict=None, options=None):
        self._args = v1.train.SessionRunArgs(fetches, feed_dict, options)
        self.results = []
        self.options = []
        self.metadata = []
        self.asked = []

    def before_run(self, run_context):
        self.asked.append(run_context.original_args.fetches)
        return self._args

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)
        self.options.append(run_values.options)
        self.metadata.append(run_values.run_metadata)


@pytest.fixture
def graph():
    """`double` is twice `fed`, which is 1 unless it is fed."""
    fed = v1.placeholder_with_default(1.0, [], name='fed')
    return fed, tf.multiply(fed, 2.0, name='double')


def _runs(pass_hooks, fetches, times=1):
    with v1.Session() as session, hooks.hooked_pass(session, pass_hooks) as runs:
        return [runs.run(fetches) for _ in range(times)], runs.should_stop


def test_without_hooks_a_run_is_a_plain_run(graph):
    assert _runs([], graph[1], times=2) == ([2.0, 2.0], False)


def test_every_hook_gets_what_it_asked_for_in_its_own_structure(graph):
    fed, double = graph
    first, silent, last = _Ask({'a': fed, 'b': [double]}), testing.RecordingHook(), _Ask(double)
    values, _ = _runs([first, silent, last], [double])
    assert values == [[2.0]]
    assert first.results == [{'a': 1.0, 'b': [2.0]}]
    assert last.results == [2.0]


def test_a_hook_that_asks_for_nothing_gets_none(graph):
    hook = _Ask(feed_dict={})
    _runs([hook], graph[1])
    assert hook.results == [None]


def test_feeds_of_hooks_reach_the_run(graph):
    fed, double = graph
    assert _runs([_Ask(feed_dict={fed: 4.0})], double)[0] == [8.0]


def test_two_hooks_that_feed_one_tensor_are_refused(graph):
    fed, double = graph
    with pytest.raises(RuntimeError, match=r'Same tensor is fed by two hooks\. Conflict.*fed:0'):
        _runs([_Ask(feed_dict={fed: 4.0}), _Ask(feed_dict={fed: 5.0})], double)


def test_options_of_hooks_reach_the_run(graph):
    traced = _Ask(options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE))
    _runs([traced, _Ask(graph[0])], graph[1])
    assert traced.options[0].trace_level == v1.RunOptions.FULL_TRACE
    assert traced.metadata[0].step_stats.dev_stats


def test_a_hook_sees_what_the_run_fetches(graph):
    hook = _Ask()
    _runs([hook], {'x': graph[1]})
    assert hook.asked == [{'x': graph[1]}]


def test_a_request_to_stop_is_remembered(graph):
    requests = iter([True, False])

    def after_run(context):
        if next(requests):
            context.request_stop()

    assert _runs([testing.RecordingHook(after_run=after_run)], graph[1], times=2)[1] is True


def test_hooks_end_after_a_pass_in_their_order(graph):
    calls = []
    _runs([testing.RecordingHook('a', calls), testing.RecordingHook('b', calls)], graph[1])
    assert calls[-2:] == ['a.end', 'b.end']


def test_hooks_do_not_end_when_an_error_escapes(graph):
    hook = testing.RecordingHook()
    with v1.Session() as session, pytest.raises(KeyError), hooks.hooked_pass(session, [hook]):
        raise KeyError
    assert hook.calls == ['hook.after_create_session']


def test_a_pass_treats_its_hooks_as_a_monitored_session_does(graph):
    # The second way: TensorFlow's own.
    fed, double = graph
    ours, theirs = ([_Ask([fed, double], {fed: 3.0}), _Ask(double)] for _ in range(2))
    values, _ = _runs(ours, double, times=2)
    with v1.train.SingularMonitoredSession(hooks=theirs) as session:
        expected = [session.run(double) for _ in range(2)]
    assert values == expected == [6.0, 6.0]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.results, other.results)
        assert mine.asked == other.asked


def test_streams_start_one_after_the_other():
    count = v1.get_variable('count', [], initializer=tf.zeros_initializer())
    start = hooks.StartStreams(count.initializer, count.assign_add(1.0).op, count.assign(count * 10.0).op)
    with v1.Session() as session:
        start.after_create_session(session, v1.train.Coordinator())
        assert session.run(count) == 10.0


def test_evaluation_hooks_begin_once_and_not_if_training_begins_them(make_graph, make_eval_set):
    calls = []
    shared, trained = testing.RecordingHook('shared', calls), testing.RecordingHook('trained', calls)
    compiled = make_graph(testing.linear_model_fn, None, [make_eval_set('a'), make_eval_set('b')])
    hooks.begin_evaluation(compiled, [('a', [shared, trained]), ('b', [shared])], begun=[trained])
    assert calls == ['shared.begin']


# Names that evaluation hooks give


def named_model_fn(features, labels, mode):
    spec = testing.linear_model_fn(features, labels, mode)
    return spec._replace(loss=tf.identity(spec.loss, name='named_loss'))


class Fetches(v1.train.SessionRunHook):
    def __init__(self, fetch):
        self._fetch = fetch
        self.values = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._fetch)

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def run_with(hook, directory, model_fn=named_model_fn):
    features, labels = testing.blobs(40)
    experiment = Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(features, labels, 7),
        eval_sets=[EvalSet(name='valid', input_fn=testing.array_input_fn(*testing.blobs(20, 1), 10), hooks=[hook])],
        train_steps=4,
        model_dir=str(directory),
        seed=1,
    )
    return experiment.train_and_evaluate()


@pytest.mark.parametrize('fetch', ['named_loss:0', {'loss': 'named_loss:0'}], ids=['name', 'structure'])
def test_a_name_means_the_tensor_of_evaluation(tmp_path, fetch):
    hook = Fetches(fetch)
    result = run_with(hook, tmp_path)
    losses = [value['loss'] if isinstance(fetch, dict) else value for value in hook.values]
    assert np.mean(losses) == pytest.approx(float(result.metrics['valid']['loss']), rel=1e-6)


def test_a_logging_hook_names_the_tensor_of_evaluation(tmp_path, caplog):
    caplog.set_level('INFO')
    hook = v1.train.LoggingTensorHook(['named_loss:0'], every_n_iter=1)
    run_with(hook, tmp_path)
    assert testing.checkpoint_values(str(tmp_path / 'model.ckpt-4'))['global_step'] == 4


def test_a_hook_that_would_take_a_batch_from_training_is_refused(tmp_path):
    class OfTraining(Fetches):
        def __init__(self):
            super().__init__(None)

        def begin(self):
            operations = v1.get_default_graph().get_operations()
            self._fetch = next(op.outputs[0] for op in operations if op.name == 'named_loss')

    with pytest.raises(errors.ConfigurationError, match='`OfTraining` of an evaluation fetches `named_loss:0`, which'):
        run_with(OfTraining(), tmp_path)
