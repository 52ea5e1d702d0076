"""The loop: what it does in which order, from the first start to the last."""

import math
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_dir, testing
from framework.reporting import rows
from framework.session import commits, loop, training
from framework.spec import EstimatorSpec, ModeKeys

EVAL_LOSS = 1.0
TRAIN_BATCH = 4


def _model(train, *, evaluation_hooks=()):
    """Returns a model_fn whose TRAIN spec is made by `train(features)`, a dict of spec fields."""

    def model_fn(features, labels, mode):
        del labels
        if mode == ModeKeys.EVAL:
            loss = tf.constant(EVAL_LOSS) + 0.0 * tf.reduce_sum(features)
            return EstimatorSpec(mode, loss=loss, evaluation_hooks=evaluation_hooks)
        fields = train(features)
        fields.setdefault('train_op', _add_to_step(1))
        fields.setdefault('loss', tf.reduce_sum(features) * 0.0 + 2.0)
        return EstimatorSpec(mode, **fields)

    return model_fn


def _add_to_step(number):
    return v1.assign_add(v1.train.get_global_step(), tf.cast(number, tf.int64))


def _saved(tmp_path):
    """Returns the steps of the commits, in order."""
    names = os.listdir(run_dir.RunDir(tmp_path).commits)
    return sorted(int(name.removeprefix('commit-').removesuffix('.json')) for name in names)


def _at_step(step, action):
    """Returns a training hook that does something after the train run that reaches a step."""
    runs = [0]

    def after_run(context):
        runs[0] += 1
        if runs[0] == step:
            action(context)

    return testing.RecordingHook(after_run=after_run)


def _stop(context):
    context.request_stop()


def _signal(_):
    os.kill(os.getpid(), signal.SIGTERM)


# Phases.


def test_a_run_alternates_training_passes_and_commits(start, make_eval_set):
    # step      0    2      3    4       6     7
    # valid (3)             E            E     E
    # test (-)                                 E
    # commit    C    C           C       C     C
    sets = [make_eval_set('valid'), make_eval_set('test')]
    run = start(7, every={'valid': 3}, sets=sets, save_checkpoints_steps=2, save_checkpoints_secs=None)
    result = run.run()
    assert run.phases == [
        'commit @0', 'train 2 @2', 'commit @2', 'train 1 @3', 'valid @3', 'train 1 @4', 'commit @4',
        'train 2 @6', 'valid @6', 'commit @6', 'train 1 @7', 'valid @7', 'test @7', 'commit @7',
    ]  # fmt: skip
    assert (result.status, result.stop_reason, result.exit_code) == ('done', 'reached step 7 of 7', 0)
    assert result.global_step == run.loop.step == 7
    assert set(result.metrics) == {'valid', 'test', 'train'}


def test_passes_at_the_start_come_before_training_and_the_first_commit(start):
    # step   0       2
    # valid  E       E
    # commit   C       C
    run = start(2, eval_at_start=True)
    run.run()
    assert run.phases == ['valid @0', 'commit @0', 'train 2 @2', 'valid @2', 'commit @2']


def test_a_run_without_commits_leaves_no_checkpoint(start, tmp_path):
    run = start(2, save_checkpoints_secs=None)
    run.run()
    assert run.phases == ['train 2 @2', 'valid @2']
    assert os.listdir(tmp_path) == []


def test_the_clock_asks_for_commits_between_steps(start, clock):
    # seconds  0    10   20   30   40   50     (10 a train run; a commit every 25)
    # step     0    1    2    3    4    5
    # commit   C              C         C
    hook = testing.RecordingHook(after_run=lambda _: clock.advance(10))
    run = start(5, sets=[], hooks=[hook], clock=clock, save_checkpoints_secs=25)
    run.run()
    assert run.phases == ['commit @0', 'train 3 @3', 'commit @3', 'train 2 @5', 'commit @5']


def test_the_timing_says_where_the_seconds_went(start, clock):
    hook = testing.RecordingHook(after_run=lambda _: clock.advance(10))
    slow = testing.RecordingHook(after_run=lambda _: clock.advance(100))
    model = _model(lambda _: {}, evaluation_hooks=[slow])
    run = start(3, model_fn=model, hooks=[hook], clock=clock)
    result = run.run()
    seconds = {'start_up': 0.0, 'train': 0.0, 'hooks': 30.0, 'evaluate': 300.0, 'commit': 0.0, 'other': 0.0}
    assert result.timing == {**seconds, 'total': 330.0}
    assert [row.secs for row in run.told(rows.PassRow)] == [300.0]


def test_a_phase_tells_its_examples(start):
    # 10 examples in batches of 4: a pass reads 3 batches, the last one of 2 examples.
    run = start(2)
    run.run()
    told = [(row.stream, row.steps, row.examples) for row in run.told(rows.PhaseRow) if row.stream]
    assert told == [('train', 2, 8), ('valid', 3, 10)]


# Stop and go on.


@pytest.mark.parametrize('stop_at', [1, 3, 4, 6, 8])
def test_a_run_that_a_signal_stopped_goes_on_in_the_phase_that_was_next(start, stop_at):
    # step      0      3      4      6      8
    # valid (3)        E             E      E
    # commit    C             C             C   (4)    and at the stop, where no pass is made
    settings = {'every': {'valid': 3}, 'save_checkpoints_steps': 4, 'save_checkpoints_secs': None}
    whole = ['commit @0', 'valid @3', 'commit @4', 'valid @6', 'valid @8', 'commit @8']
    first = start(8, hooks=[_at_step(stop_at, _signal)], **settings)
    second = start(8, **settings)
    result = first.run()
    assert result.status == 'interrupted'
    assert result.exit_code == 128 + signal.SIGTERM
    assert result.stop_reason == f'SIGTERM received at step {stop_at}; the same command goes on from there'
    stop = f'commit @{stop_at}'
    assert first.phases[-1] == stop
    assert second.run().status == 'done'
    both = [phase for phase in first.phases + second.phases if not phase.startswith('train')]
    assert [phase for phase in both if phase != stop] == [phase for phase in whole if phase != stop]
    assert second.loop.step == 8


def test_a_resumed_run_has_the_weights_it_was_stopped_with(start, tmp_path):
    start(4, hooks=[_at_step(2, _signal)], sets=[]).run()
    seen = []

    class Look(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            seen.append(session.run(self.weights))

        def begin(self):
            self.weights = v1.global_variables('weights')[0].read_value()

    start(4, hooks=[Look()], sets=[]).run()
    saved = testing.checkpoint_values(str(tmp_path / 'model.ckpt-2'))['weights']
    assert np.any(saved != 0)
    np.testing.assert_array_equal(seen[0], saved)


def test_a_signal_in_a_pass_throws_its_metrics_away_and_the_set_is_evaluated_after_the_resume(start, make_eval_set):
    # step      0        2
    # first                E        made, and kept by the commit
    # second               E        broken off in its second batch: made by the next process
    # third                         not begun
    def sets(hook):
        return [make_eval_set('first'), make_eval_set('second', hooks=hook), make_eval_set('third')]

    every = {'first': 2, 'second': 2, 'third': 2}
    hook = _at_step(2, _signal)
    run = start(4, sets=sets([hook]), every=every)
    result = run.run()
    assert run.phases == ['commit @0', 'train 2 @2', 'first @2', 'commit @2']
    assert [row.stream for row in run.told(rows.PassRow)] == ['first']
    assert (result.status, set(result.metrics)) == ('interrupted', {'first', 'train'})
    assert 'hook.end' not in hook.calls
    resumed = start(4, sets=sets([]), every=every)
    resumed.run()
    assert resumed.phases[:4] == ['second @2', 'third @2', 'train 2 @4', 'first @4']


def test_a_signal_while_the_session_opens_ends_the_run_before_its_first_step(start):
    class Kill(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            _signal(None)

    run = start(4, hooks=[Kill()], eval_at_start=True)
    assert run.run().stop_reason.startswith('SIGTERM received at step 0')
    assert run.phases == ['commit @0']
    again = start(4, eval_at_start=True)
    again.run()
    assert again.phases == ['valid @0', 'train 4 @4', 'valid @4', 'commit @4']


def test_the_run_gives_the_signal_handlers_back(start):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    start(1, hooks=[_at_step(1, _signal)], sets=[]).run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_start_when_the_step_is_reached_gives_the_recorded_metrics_without_another_pass(start):
    first = start(3).run()
    again = start(3, seed=5)
    result = again.run()
    assert again.writer.rows == []
    assert (result.status, result.global_step) == ('done', 3)
    assert result.metrics == {'valid': {name: float(value) for name, value in first.metrics['valid'].items()}}


def test_a_set_that_is_new_to_a_finished_run_gets_one_pass_that_is_committed(start, make_eval_set):
    start(3).run()
    sets = [make_eval_set('valid'), make_eval_set('new')]
    second, third = start(3, sets=sets), start(3, sets=sets)
    second.run()
    assert second.phases == ['new @3', 'commit @3']
    assert set(third.run().metrics) == {'valid', 'new'}
    assert third.phases == []


def test_a_run_that_is_made_longer_trains_on(start):
    start(3).run()
    longer = start(5, every={'valid': 4})
    assert longer.run().stop_reason == 'reached step 5 of 5'
    assert longer.phases == ['train 1 @4', 'valid @4', 'train 1 @5', 'valid @5', 'commit @5']


def test_a_checkpoint_without_commits_is_gone_on_from(start, tmp_path):
    # What tf.estimator left: a checkpoint and TensorFlow's file that names it.
    start(3).run()
    for name in os.listdir(tmp_path / 'commits'):
        os.remove(tmp_path / 'commits' / name)
    run = start(5)
    assert run.run().global_step == 5
    assert run.phases == ['train 2 @5', 'valid @5', 'commit @5']


def test_a_signal_without_commits_promises_no_resume(start, tmp_path):
    result = start(4, hooks=[_at_step(2, _signal)], save_checkpoints_secs=None).run()
    assert result.stop_reason == 'SIGTERM received at step 2; commits are off, so nothing was saved'
    assert os.listdir(tmp_path) == []


def test_metrics_of_an_older_step_that_an_earlier_process_made_are_left_out(start):
    # step      0     2      3     5
    # valid (2)       E    (stop)        the second process makes no pass
    start(5, every={'valid': 2}, hooks=[_at_step(3, _signal)]).run()
    assert set(start(5, sets=[]).run().metrics) == {'train'}


def test_metrics_that_are_not_finite_are_floats_after_a_resume(start):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.EVAL:
            return spec
        worst = v1.metrics.mean(tf.constant([math.inf, -1.0]))
        return spec._replace(eval_metric_ops={'worst': worst, 'none': v1.metrics.mean(tf.constant(math.nan))})

    start(2, model_fn=model_fn).run()
    metrics = start(2, model_fn=model_fn).run().metrics['valid']
    assert metrics['worst'] == math.inf
    assert math.isnan(metrics['none'])


# Ends.


def test_exhausted_data_end_the_run_with_a_last_pass_and_a_commit(start, batches):
    # step      0       2      3 (data end)
    # valid (2)         E        E
    # commit    C                C
    run = start(None, every={'valid': 2}, train_input_fn=batches(3))
    result = run.run()
    assert run.phases == ['commit @0', 'train 2 @2', 'valid @2', 'train 1 @3', 'valid @3', 'commit @3']
    assert (result.status, result.exit_code) == ('exhausted', 0)
    assert result.stop_reason == 'the training data ended at step 3'


def test_data_that_end_on_a_boundary_make_no_second_pass_there(start, batches):
    run = start(None, every={'valid': 2}, train_input_fn=batches(2))
    assert run.run().status == 'exhausted'
    assert run.phases == ['commit @0', 'train 2 @2', 'valid @2', 'commit @2']


def test_a_second_start_of_an_exhausted_run_ends_at_once(start, batches):
    first = start(None, train_input_fn=batches(3)).run()
    again = start(None, train_input_fn=batches(3))
    result = again.run()
    assert again.writer.rows == []
    assert result.status == first.status == 'exhausted'
    remedy = '`--model_dir` of a new run trains on them again'
    assert result.stop_reason == f'the training data ended at step 3; {remedy}'
    assert result.metrics['valid']['accuracy'] == float(first.metrics['valid']['accuracy'])


def test_exactly_as_much_data_as_steps_is_no_exhaustion(start, batches):
    assert start(3, train_input_fn=batches(3)).run().status == 'done'


def test_training_data_without_a_batch_are_refused(start, batches):
    run = start(3, train_input_fn=batches(0))
    with pytest.raises(errors.ConfigurationError, match=r'`Experiment\.train_input_fn` gave no batch'):
        run.run()


def test_a_hook_that_requests_a_stop_ends_the_run_with_a_pass_and_a_commit(start):
    run = start(8, hooks=[_at_step(3, _stop)])
    result = run.run()
    assert run.phases == ['commit @0', 'train 3 @3', 'valid @3', 'commit @3']
    assert (result.status, result.stop_reason) == ('stopped', 'a hook asked for it at step 3')
    assert result.exit_code == 0


def test_a_run_that_a_hook_stopped_goes_on_when_started_again(start):
    start(8, hooks=[_at_step(3, _stop)]).run()
    assert start(8).run().global_step == 8


def test_a_hook_that_stops_the_session_before_the_first_step_ends_the_run(start):
    class Refuse(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            coord.request_stop()

    run = start(8, hooks=[Refuse()])
    assert run.run().stop_reason == 'a hook asked for it at step 0'
    assert run.phases == ['valid @0', 'commit @0']


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_raises_with_its_step_and_saves_nothing_of_it(start, tmp_path, bad):
    def train(_):
        loss = tf.where(v1.train.get_global_step().read_value() >= 2, bad, 1.0)
        with tf.control_dependencies([loss]):
            return {'loss': loss, 'train_op': _add_to_step(1)}

    run = start(5, model_fn=_model(train), save_checkpoints_steps=1, save_checkpoints_secs=None)
    with pytest.raises(training.NanLossError, match=rf'`loss` \[{bad}\] is not finite at step 3\. Nothing') as caught:
        run.run()
    assert isinstance(caught.value, v1.train.NanLossDuringTrainingError)
    assert caught.value.exit_code == 1
    assert _saved(tmp_path) == [0, 1, 2]
    assert run.loop.step == 3


def test_a_global_step_that_stands_still_for_1000_runs_is_an_error(start):
    def train(features):
        return {'train_op': tf.identity(tf.reduce_sum(features))}

    hook = testing.RecordingHook()
    run = start(5, model_fn=_model(train), sets=[], hooks=[hook])
    with pytest.raises(errors.RunError, match=r'`global_step` \[0\] has not moved for 1000 runs\. Pass'):
        run.run()
    assert hook.calls.count('hook.after_run') == 1000


def test_the_end_of_another_op_in_training_is_named_and_not_taken_for_the_end(start, tmp_path):
    class Fill(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            for _ in range(2):
                session.run('fill')
            session.run('close')

    def train(features):
        queue = v1.FIFOQueue(5, [tf.float32], shapes=[[]], name='user_queue')
        tf.group(queue.enqueue(3.0), name='fill')
        tf.group(queue.close(), name='close')
        return {'loss': queue.dequeue(name='user_dequeue') + 0.0 * tf.reduce_sum(features)}

    run = start(5, model_fn=_model(train), hooks=[Fill()])
    with pytest.raises(errors.RunError, match=r'`user_dequeue` \[QueueDequeueV2\] reported the end .* in training'):
        run.run()
    assert _saved(tmp_path) == [0]
    assert run.loop.step == 2


@pytest.mark.parametrize(
    ('error', 'text'),
    [
        (StopIteration('mine'), r"StopIteration escaped from a hook.*StopIteration\('mine'\)"),
        (tf.errors.OutOfRangeError(None, None, 'mine'), 'an op reported the end of its data in training.*mine'),
    ],
)
def test_what_a_monitored_session_would_swallow_is_an_error_when_a_hook_raises_it(start, error, text):
    def fail(_):
        raise error

    run = start(5, hooks=[_at_step(2, fail)])
    with pytest.raises(errors.RunError, match=text):
        run.run()


def test_an_error_of_a_hook_passes_through_unchanged_and_saves_nothing_more(start, tmp_path):
    def fail(_):
        raise KeyError('mine')

    with pytest.raises(KeyError, match='mine'):
        start(5, hooks=[_at_step(2, fail)]).run()
    assert _saved(tmp_path) == [0]


def test_a_graph_without_training_is_refused(make_graph, make_eval_set):
    built = make_graph(testing.linear_model_fn, None, [make_eval_set()])
    with pytest.raises(errors.ConfigurationError, match=r'`Experiment\.train_input_fn` is missing'):
        loop.Loop(built, None, None, testing.RecordingWriter(), None)


# Hooks.


def test_hooks_are_called_in_the_order_of_estimator(start):
    calls = []

    def hook(name):
        return testing.RecordingHook(name, calls)

    def train(_):
        return {
            'training_chief_hooks': [hook('chief')],
            'training_hooks': [hook('spec')],
        }

    start(1, model_fn=_model(train), hooks=[hook('caller 1'), hook('caller 2')]).run()
    names = ['chief', 'caller 1', 'caller 2', 'spec']
    events = ['begin', 'after_create_session', 'before_run', 'after_run', 'end']
    assert calls == [f'{name}.{event}' for event in events for name in names]


def test_the_input_starts_after_the_chiefs_hooks_and_before_the_callers(start):
    started = {}

    class Probe(v1.train.SessionRunHook):
        def __init__(self, name):
            self._name = name

        def after_create_session(self, session, coord):
            try:
                session.run('framework/train_input/IteratorGetNext:0')
                started[self._name] = True
            except tf.errors.FailedPreconditionError:
                started[self._name] = False

    def train(_):
        return {'training_chief_hooks': [Probe('chief')], 'training_hooks': [Probe('spec')]}

    start(1, model_fn=_model(train), hooks=[Probe('caller')]).run()
    assert started == {'chief': False, 'caller': True, 'spec': True}


def test_training_hooks_do_not_see_evaluation_nor_evaluation_hooks_training(start):
    train_hook, eval_hook = testing.RecordingHook(), testing.RecordingHook()
    model = _model(lambda _: {}, evaluation_hooks=[eval_hook])
    start(4, every={'valid': 2}, model_fn=model, hooks=[train_hook]).run()
    assert train_hook.calls.count('hook.before_run') == train_hook.calls.count('hook.after_run') == 4
    assert eval_hook.calls.count('hook.before_run') == eval_hook.calls.count('hook.after_run') == 2 * 3


def test_a_hook_that_both_streams_use_begins_once(start):
    shared = testing.RecordingHook()
    start(2, model_fn=_model(lambda _: {}, evaluation_hooks=[shared]), hooks=[shared]).run()
    assert shared.calls.count('hook.begin') == 1


def test_the_hooks_of_tensorflow_work(start, tmp_path):
    def train(_):
        v1.summary.scalar('constant', 1.0)
        hook = v1.train.SummarySaverHook(
            save_steps=1, output_dir=str(tmp_path / 'hook'), summary_op=v1.summary.merge_all()
        )
        return {'training_hooks': [hook, v1.train.StopAtStepHook(last_step=2)]}

    result = start(5, model_fn=_model(train)).run()
    assert (result.status, result.global_step) == ('stopped', 2)
    assert len(os.listdir(tmp_path / 'hook')) == 1


# What is told.


def test_losses_are_those_of_gradient_descent_in_numpy(start):
    features, labels = testing.blobs(20)
    run = start(5, sets=[], log_step_count_steps=1)
    result = run.run()
    weights, expected = np.zeros((4, 2)), []
    for i in range(5):
        x, y = features[4 * i : 4 * i + 4].astype(np.float64), np.eye(2)[labels[4 * i : 4 * i + 4]]
        exps = np.exp(x @ weights)
        probabilities = exps / exps.sum(axis=1, keepdims=True)
        expected.append(-np.log((probabilities * y).sum(axis=1)).mean())
        weights -= 0.1 * x.T @ (probabilities - y) / 4
    steps = run.told(rows.StepRow)
    assert [row.step for row in steps] == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([row.loss for row in steps], expected, rtol=1e-5)
    assert result.metrics == {'train': {'loss': steps[-1].loss}}


def test_loss_rows_come_at_multiples_of_the_period(start):
    run = start(7, sets=[], log_step_count_steps=3)
    run.run()
    assert [(row.step, row.train_steps) for row in run.told(rows.StepRow)] == [(3, 7), (6, 7)]


def test_a_resumed_run_logs_at_the_same_steps(start):
    start(7, sets=[], log_step_count_steps=3, hooks=[_at_step(4, _signal)]).run()
    run = start(7, sets=[], log_step_count_steps=3)
    run.run()
    assert [row.step for row in run.told(rows.StepRow)] == [6]


def test_the_rate_leaves_passes_and_commits_out(start, clock):
    # Train runs last 2 s each, batches of evaluation 100 s. Rows at steps 2 and 4, with passes at 1 and 3.
    hook = testing.RecordingHook(after_run=lambda _: clock.advance(2))
    slow = testing.RecordingHook(after_run=lambda _: clock.advance(100))
    model = _model(lambda _: {}, evaluation_hooks=[slow])
    settings = {'log_step_count_steps': 2, 'save_checkpoints_steps': 1, 'save_checkpoints_secs': None}
    run = start(4, every={'valid': 1}, model_fn=model, hooks=[hook], clock=clock, **settings)
    run.run()
    assert [row.steps_per_sec for row in run.told(rows.StepRow)] == [0.5, 0.5]


def test_no_cadence_no_rows(start):
    run = start(2, sets=[], log_step_count_steps=None, save_summary_steps=None)
    run.run()
    assert run.told(rows.StepRow) == run.told(rows.SummaryRow) == []


def _summarised(features):
    del features
    step = v1.train.get_global_step().read_value()  # before or after the train op: the same run's
    v1.summary.scalar('twice', 2.0 * tf.cast(step, tf.float32))
    return {}


def _tags(row):
    return [value.tag for value in v1.Summary.FromString(row.summary).value]


def test_summaries_come_at_the_first_step_and_at_multiples_of_the_period(start):
    run = start(7, model_fn=_model(_summarised), every={'valid': 1}, save_summary_steps=3)
    run.run()
    told = run.told(rows.SummaryRow)
    assert [(row.step, row.loss) for row in told] == [(1, 2.0), (3, 2.0), (6, 2.0)]
    assert [_tags(row) for row in told] == [['twice']] * 3


def test_a_resumed_run_summarises_at_the_same_steps(start):
    settings = {'model_fn': _model(_summarised), 'sets': [], 'save_summary_steps': 3}
    start(7, hooks=[_at_step(4, _signal)], **settings).run()
    run = start(7, **settings)
    run.run()
    assert [row.step for row in run.told(rows.SummaryRow)] == [6]


def test_a_model_without_summaries_tells_its_loss_at_the_same_steps(start):
    run = start(4, sets=[], save_summary_steps=2)
    run.run()
    assert [(row.step, row.summary) for row in run.told(rows.SummaryRow)] == [(1, b''), (2, b''), (4, b'')]


# The global step.


def test_a_train_op_that_moves_the_step_by_2_keeps_every_cadence(start):
    # step      0   2   4   6   8
    # valid (3)         E   E   E      at the first step behind 3, 6, 9 or the end
    def train(features):
        return {**_summarised(features), 'train_op': _add_to_step(2)}

    run = start(7, every={'valid': 3}, model_fn=_model(train), log_step_count_steps=3, save_summary_steps=3)
    result = run.run()
    assert [phase for phase in run.phases if phase[0] == 'v'] == ['valid @4', 'valid @6', 'valid @8']
    assert result.global_step == 8
    assert [row.step for row in run.told(rows.StepRow)] == [4, 6]
    summaries = run.told(rows.SummaryRow)
    assert [row.step for row in summaries] == [2, 4, 6]
    assert [_tags(row) for row in summaries] == [['twice']] * 3


def test_gradient_accumulation_moves_the_step_in_every_third_run(start):
    def train(features):
        runs = v1.get_variable('runs', [], tf.int64, tf.zeros_initializer(), trainable=False)
        moved = tf.equal(v1.assign_add(runs, tf.ones([], tf.int64)) % 3, 0)
        return {**_summarised(features), 'train_op': _add_to_step(moved)}

    hook = testing.RecordingHook()
    run = start(4, every={'valid': 2}, model_fn=_model(train), hooks=[hook], save_summary_steps=2)
    run.run()
    assert hook.calls.count('hook.after_run') == 12
    assert run.phases == ['commit @0', 'train 2 @2', 'valid @2', 'train 2 @4', 'valid @4', 'commit @4']
    summaries = run.told(rows.SummaryRow)
    assert [(row.step, _tags(row)) for row in summaries] == [(1, ['twice']), (2, ['twice']), (4, ['twice'])]
    assert [row.examples for row in run.told(rows.PhaseRow) if row.phase == 'train'] == [24, 24]


def test_accumulation_that_is_stopped_between_two_steps_goes_on(start, tmp_path):
    def train(_):
        runs = v1.get_variable('runs', [], tf.int64, tf.zeros_initializer(), trainable=False)
        moved = tf.equal(v1.assign_add(runs, tf.ones([], tf.int64)) % 3, 0)
        return {'train_op': _add_to_step(moved)}

    start(2, model_fn=_model(train), hooks=[_at_step(4, _signal)], sets=[]).run()
    assert testing.checkpoint_values(str(tmp_path / 'model.ckpt-1'))['runs'] == 4
    start(2, model_fn=_model(train), sets=[]).run()
    assert testing.checkpoint_values(str(tmp_path / 'model.ckpt-2'))['runs'] == 6


def test_a_commit_records_the_runs_and_the_seed(start, tmp_path):
    start(3, seed=7, save_checkpoints_steps=2, save_checkpoints_secs=None).run()
    newest = commits.Commits(run_dir.RunDir(tmp_path)).latest()
    assert (newest.step, newest.previous_step, newest.runs, newest.seed, newest.exhausted) == (3, 2, 3, 7, False)
    assert newest.passes['valid'].step == 3


# The Scaffold.


def _local(name, value):
    return v1.get_local_variable(name, [], tf.float32, tf.constant_initializer(value))


def test_a_local_init_op_of_the_user_is_run_and_evaluation_is_initialised_all_the_same(start):
    def train(_):
        scale = _local('scale', 1.0)
        with tf.control_dependencies([scale.initializer]):
            op = scale.assign(5.0)
        return {'loss': tf.identity(scale), 'scaffold': v1.train.Scaffold(local_init_op=op)}

    assert start(2, every={'valid': 1}, model_fn=_model(train)).run().metrics == {
        'train': {'loss': 5.0},
        'valid': {'loss': EVAL_LOSS, 'loss_per_example': EVAL_LOSS},
    }


def test_an_init_fn_of_the_user_is_called_at_the_beginning_only(start):
    called = []

    def train(_):
        weight = v1.get_variable('weight', [], initializer=tf.zeros_initializer())
        given = v1.placeholder(tf.float32, [])
        assign = weight.assign(given)

        def init_fn(scaffold, session):
            called.append(scaffold)
            session.run(assign, {given: 7.0})

        op = tf.group(v1.local_variables_initializer())
        return {
            'loss': tf.identity(weight),
            'scaffold': v1.train.Scaffold(init_fn=init_fn, local_init_op=op),
        }

    assert start(2, model_fn=_model(train)).run().metrics['train'] == {'loss': 7.0}
    assert start(4, model_fn=_model(train)).run().metrics['train'] == {'loss': 7.0}
    assert len(called) == 1


def test_a_saver_of_the_user_saves_under_its_names_and_deletes_nothing(start, tmp_path):
    def train(_):
        weight = v1.get_variable('weight', [], initializer=tf.ones_initializer())
        step = v1.train.get_global_step()
        saver = v1.train.Saver({'other_name': weight, 'global_step': step}, max_to_keep=1)
        return {'loss': tf.identity(weight), 'scaffold': v1.train.Scaffold(saver=saver)}

    settings = {'save_checkpoints_steps': 1, 'save_checkpoints_secs': None, 'model_fn': _model(train)}
    start(3, **settings).run()
    for step in _saved(tmp_path):
        assert set(testing.checkpoint_values(str(tmp_path / f'model.ckpt-{step}'))) == {'other_name', 'global_step'}
    assert _saved(tmp_path) == [0, 1, 2, 3]
    assert start(4, **settings).run().global_step == 4


def test_a_ready_op_of_the_user_decides_whether_the_session_is_ready(start):
    def train(_):
        return {'scaffold': v1.train.Scaffold(ready_op=tf.constant(['not yet']))}

    with pytest.raises(RuntimeError, match=r'did not make model ready(.|\n)*not yet'):
        start(2, model_fn=_model(train)).run()


def test_a_summary_op_of_the_user_is_the_one_that_is_told(start):
    def train(_):
        v1.summary.scalar('mine', 1.0)
        op = v1.summary.merge_all()
        v1.summary.scalar('not_mine', 1.0)
        return {'scaffold': v1.train.Scaffold(summary_op=op)}

    run = start(1, model_fn=_model(train), sets=[])
    run.run()
    assert [_tags(row) for row in run.told(rows.SummaryRow)] == [['mine']]


def test_passes_leave_the_metrics_of_training_alone(start):
    # A running mean of 1, 2, 3, 4 in a local variable of the training call, with a pass after each step.
    def train(_):
        step = v1.train.get_global_step().read_value()
        with tf.control_dependencies([step]):
            moved = _add_to_step(1)
        _, update = v1.metrics.mean(tf.cast(step + 1, tf.float32))
        return {'train_op': tf.group(moved, update), 'loss': update}

    run = start(4, every={'valid': 1}, model_fn=_model(train), log_step_count_steps=1)
    run.run()
    np.testing.assert_allclose([row.loss for row in run.told(rows.StepRow)], [1.0, 1.5, 2.0, 2.5])


def test_the_session_configuration_is_the_users(start):
    seen = []

    class Look(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            seen.append(session._config.inter_op_parallelism_threads)

    start(1, sets=[], hooks=[Look()], session_config=v1.ConfigProto(inter_op_parallelism_threads=3)).run()
    assert seen == [3]


# Training data that starts again.

SEVEN = 7  # batches an epoch


def test_epochs_of_seven_batches_with_a_pass_every_five_steps(start, batches, make_eval_set):
    # epoch       |0           |1            |2
    # step        0    5   7   12   14       19   21
    # valid (5)        E   E   E    E        E    E
    # test (2 ep)                   E             E
    sets = [make_eval_set('valid'), make_eval_set('test')]
    run = start(
        None,
        every={'valid': 5},
        sets=sets,
        train_input_fn=batches(SEVEN),
        schedule={'restart': True, 'train_epochs': 3, 'epoch_periods': {'test': 2}},
    )
    result = run.run()
    assert run.phases == [
        'commit @0', 'train 5 @5', 'valid @5', 'train 2 @7', 'valid @7', 'train 5 @12', 'valid @12',
        'train 2 @14', 'valid @14', 'test @14', 'train 5 @19', 'valid @19', 'train 2 @21', 'valid @21', 'test @21',
        'commit @21',
    ]  # fmt: skip
    assert (result.status, result.stop_reason) == ('done', 'trained epoch 3 of 3, to step 21')
    trained = [row for row in run.told(rows.PhaseRow) if row.phase == 'train']
    assert sum(row.examples for row in trained) == 3 * SEVEN * 4
    assert [row.examples for row in trained] == [20, 8, 20, 8, 20, 8]


@pytest.mark.parametrize('stop', [3, 5, 7, 9, 14, 20])
def test_a_run_that_is_stopped_goes_on_at_its_place_in_the_epoch(start, batches, stop):
    settings = {
        'every': {'valid': 5},
        'train_input_fn': batches(SEVEN),
        'schedule': {'restart': True, 'train_epochs': 3},
    }
    start(None, hooks=[_at_step(stop, _signal)], **settings).run()
    second = start(None, **settings)
    result = second.run()
    assert (result.stop_reason, result.global_step) == ('trained epoch 3 of 3, to step 21', 21)
    passes = [phase for phase in second.phases if phase.startswith('valid')]
    assert passes == [f'valid @{step}' for step in (5, 7, 12, 14, 19, 21) if step >= stop]


def test_data_that_ended_goes_on_where_it_may_now_start_again(start, batches):
    assert start(None, train_input_fn=batches(SEVEN)).run().status == 'exhausted'
    result = start(10, train_input_fn=batches(SEVEN), schedule={'restart': True}).run()
    assert (result.status, result.global_step) == ('done', 10)


def test_data_without_a_batch_is_refused_where_it_starts_again_too(start, batches):
    with pytest.raises(errors.ConfigurationError, match=r'`Experiment.train_input_fn` gave no batch'):
        start(4, train_input_fn=batches(0), schedule={'restart': True}).run()


def test_tensors_can_not_start_again(start):
    def input_fn():
        data = tf.data.Dataset.from_tensors(testing.blobs(4))
        return v1.data.make_one_shot_iterator(data).get_next()

    with pytest.raises(errors.ConfigurationError, match=r"`Experiment.on_train_end` \['restart'\] needs a Dataset"):
        start(4, train_input_fn=input_fn, schedule={'restart': True})


def test_epochs_of_infinite_data_are_refused(start):
    run = start(None, schedule={'restart': True, 'train_epochs': 2})
    with pytest.raises(errors.ConfigurationError, match=r'is infinite, so there are no epochs to count'):
        run.run()


def test_infinite_data_never_start_again(start):
    assert start(6, schedule={'restart': True}).run().status == 'done'


def test_weights_over_epochs_are_those_of_data_that_repeat(start, batches, tmp_path):
    data = testing.blobs(TRAIN_BATCH * SEVEN)

    def repeated():
        return tf.data.Dataset.from_tensor_slices(data).batch(TRAIN_BATCH).repeat()

    for name, settings in {
        'a': {'train_input_fn': batches(SEVEN), 'schedule': {'restart': True}},
        'b': {'train_input_fn': repeated},
    }.items():
        (tmp_path / name).mkdir()
        start(17, directory=tmp_path / name, **settings).run()
    first, second = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-17')) for name in 'ab')
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])


def _counting_by_itself(features, labels, mode):
    """The step is counted beside the optimizer, as in many an old code base: not after it."""
    made = testing.linear_model_fn(features, labels, mode)
    if mode != ModeKeys.TRAIN:
        return made
    optimized = v1.train.GradientDescentOptimizer(0.1).minimize(made.loss)
    return EstimatorSpec(mode, loss=made.loss, train_op=tf.group(optimized, _add_to_step(1)))


@pytest.mark.parametrize('known', [True, False])
@pytest.mark.parametrize('schedule', [{'restart': True, 'train_epochs': 3}, {}])
def test_no_run_finds_the_end_of_the_data_and_counts_a_step_for_nothing(start, batches, tmp_path, schedule, known):
    def unknown():
        return batches(SEVEN)().filter(lambda x, y: True)

    epochs = schedule.get('train_epochs', 1)
    settings = {'model_fn': _counting_by_itself, 'train_input_fn': batches(SEVEN) if known else unknown}
    run = start(None, every={'valid': 5}, schedule=schedule, **settings)
    result = run.run()
    assert result.global_step == SEVEN * epochs
    values = testing.checkpoint_values(v1.train.latest_checkpoint(str(tmp_path)))
    assert values['global_step'] == SEVEN * epochs
    again = start(None, every={'valid': 5}, schedule=schedule, **settings)
    assert again.run().global_step == SEVEN * epochs and again.phases == []  # it is finished


def test_a_hook_that_moves_the_step_ends_in_no_endless_evaluation(start, make_eval_set):
    class Moves(v1.train.SessionRunHook):
        def begin(self):
            self._add = _add_to_step(1)

        def after_run(self, run_context, run_values):
            run_context.session.run(self._add)

    run = start(6, every={'valid': 2}, hooks=[Moves()], model_fn=testing.linear_model_fn)
    assert run.run().global_step >= 6
    assert len([phase for phase in run.phases if phase.startswith('valid')]) <= 4


# Passes by the clock.


def test_a_clock_asks_for_passes(start, clock, make_eval_set):
    # seconds     0   10   20   30   40   50     (10 a train run)
    # step        0   1    2    3    4    5
    # valid (25)                E         E
    hook = testing.RecordingHook(after_run=lambda _: clock.advance(10))
    run = start(5, hooks=[hook], clock=clock, schedule={'second_periods': {'valid': 25.0}})
    run.run()
    assert run.phases == ['commit @0', 'train 3 @3', 'valid @3', 'train 2 @5', 'valid @5', 'commit @5']


def test_summaries_and_lines_by_the_clock(start, clock):
    hook = testing.RecordingHook(after_run=lambda _: clock.advance(10))
    config = {'save_summary_secs': 25, 'save_summary_steps': None, 'log_step_count_secs': 35}
    run = start(8, sets=[], hooks=[hook], clock=clock, **config, log_step_count_steps=None)
    run.run()
    assert [row.step for row in run.told(rows.SummaryRow)] == [1, 4, 7]
    assert [row.step for row in run.told(rows.StepRow)] == [4, 8]


# Losses that are not finite.


def _nan_at(step):
    def train(features):
        before = tf.cast(v1.train.get_global_step(), tf.float32)
        bad = tf.equal(before, step - 1.0)
        loss = tf.where(bad, np.nan, 1.0) + 0.0 * tf.reduce_sum(features)
        with tf.control_dependencies([loss]):  # it reads the step before that moves
            return {'loss': loss, 'train_op': _add_to_step(1)}

    return _model(train)


def test_a_run_that_stops_at_a_loss_that_is_not_finite_saves_nothing_of_it(start, tmp_path):
    run = start(9, every={'valid': 2}, model_fn=_nan_at(5), on_nan='stop', save_checkpoints_secs=3600)
    result = run.run()
    assert (result.status, result.exit_code, result.global_step) == ('stopped', 0, 5)
    assert "`loss` [nan] is not finite at step 5, and `on_nan` is ['stop']" in result.stop_reason
    assert run.phases[-1] == 'train 1 @5' and _saved(tmp_path) == [0]


def test_a_run_that_ignores_a_loss_that_is_not_finite_goes_on(start, caplog):
    result = start(9, model_fn=_nan_at(5), on_nan='ignore').run()
    assert (result.status, result.global_step) == ('done', 9)


# Metrics of training.


def test_metrics_of_training_are_those_of_their_log_period(start):
    data = testing.blobs(20)[0]

    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.TRAIN:
            return made
        metrics = {'mean': v1.metrics.mean(features)}
        return EstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metric_ops=metrics)

    run = start(10, sets=[], model_fn=model_fn, train_metrics=True, log_step_count_steps=5)
    result = run.run()
    told = [row.metrics['mean'] for row in run.told(rows.StepRow)]
    # Five batches of 4 are all 20 examples, in both periods.
    np.testing.assert_allclose(told, [data.mean()] * 2, rtol=1e-6)
    assert result.metrics['train']['mean'] == told[-1]


def test_metrics_of_training_change_no_weight(start, tmp_path):
    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.TRAIN:
            return made
        metrics = {'mean': v1.metrics.mean(features), 'accuracy': v1.metrics.accuracy(labels, labels)}
        return EstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metric_ops=metrics)

    for name, accumulate in {'with': True, 'without': False}.items():
        (tmp_path / name).mkdir()
        start(8, sets=[], model_fn=model_fn, train_metrics=accumulate, directory=tmp_path / name).run()
    first, second = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-8')) for name in ('with', 'without'))
    assert first.keys() == second.keys()
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])
