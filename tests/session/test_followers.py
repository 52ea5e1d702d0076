"""What acts on metrics: first on its own with scripted values, then in runs that are stopped at every evaluation."""

import json
import math
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, policies, run_dir, testing
from framework.reporting.rows import PassRow
from framework.session import followers
from framework.spec import EstimatorSpec, ModeKeys

EVERY = 2  # steps between two passes


def _row(step, value, stream='valid', name='score'):
    return PassRow(step, stream, {name: value}, 1, 1, 0.0)


def _see(follower, series):
    """Shows a series, a value a pass, and returns the follower."""
    for i, value in enumerate(series):
        follower.saw(_row(EVERY * (i + 1), value))
    return follower


def _best(keep=1, mode='max'):
    return followers.Best(policies.KeepBest(metric='valid/score', mode=mode, keep=keep))


def _stopping(**settings):
    return followers.Stopping(policies.EarlyStopping(metric='valid/score', **{'mode': 'max', **settings}))


def _stop_step(series, **settings):
    """Returns the step of the pass after which training ends, None if it doesn't."""
    follower = _stopping(**settings)
    for i, value in enumerate(series):
        follower.saw(_row(EVERY * (i + 1), value))
        if follower.reason is not None:
            return EVERY * (i + 1)
    return None


# The best.


@pytest.mark.parametrize(
    ('series', 'mode', 'keep', 'kept'),
    [
        ([1, 3, 2], 'max', 1, [4]),
        ([1, 3, 2], 'min', 1, [2]),
        ([1, 3, 2], 'max', 2, [4, 6]),
        ([1, 3, 2, 4], 'max', 3, [8, 4, 6]),
        ([5, 5, 5], 'max', 2, [2, 4]),  # of equal ones the earlier is better
        ([1, math.nan, 0.5], 'max', 2, [2, 6]),
        ([math.nan, math.nan], 'max', 1, []),
        ([-math.inf, 1], 'max', 2, [4, 2]),
    ],
)
def test_the_best_are_those_of_a_sorted_list(series, mode, keep, kept):
    assert [step for step, _ in _see(_best(keep, mode), series).kept] == kept


def test_a_pass_that_is_not_among_the_best_asks_for_no_commit():
    best = _see(_best(), [1])
    assert best.unsaved
    best.committed()
    best.saw(_row(4, 0.5))
    assert not best.unsaved


def test_a_pass_over_another_set_changes_nothing():
    best = _best()
    best.saw(_row(2, 1.0, stream='test'))
    assert best.kept == []


@pytest.mark.parametrize('value', [np.zeros(3), b'picture', 'text', True])
def test_a_metric_that_is_no_number_is_refused(value):
    with pytest.raises(errors.ConfigurationError, match=r'`KeepBest.metric` \[valid/score\] is no number'):
        _best().saw(_row(2, value))


@pytest.mark.parametrize('value', [np.float32(0.1), np.int64(3), np.array(2.5), 1])
def test_every_scalar_is_a_number(value):
    assert _see(_best(), [value]).kept == [(2, float(value))]


# Early stopping.


@pytest.mark.parametrize(
    ('series', 'settings', 'stop'),
    [
        ([3, 2, 1], {'patience_evals': 2}, 6),
        ([3, 2, 4, 2, 1], {'patience_evals': 2}, 10),
        ([3, 3, 3], {'patience_evals': 2}, 6),  # an equal value is no better one
        ([1, 2, 3], {'patience_evals': 1}, None),
        ([3, 2, 1], {'patience_evals': 2, 'mode': 'min'}, None),
        ([1.0, 1.05, 1.09, 1.2], {'patience_evals': 2, 'min_delta': 0.1}, 6),
        ([1.0, 1.05, 1.11, 1.2], {'patience_evals': 2, 'min_delta': 0.1}, None),
        ([9, 1, 1, 1, 1], {'patience_evals': 2, 'min_steps': 6}, 10),  # passes before step 6 count in no way
        ([math.nan, math.nan], {'patience_evals': 2}, 4),
        ([math.nan, 1, 2], {'patience_evals': 2}, None),
    ],
)
def test_training_ends_after_so_many_passes_without_a_better_value(series, settings, stop):
    assert _stop_step(series, **settings) == stop


def test_the_reason_names_the_metric_the_best_value_and_its_step():
    reason = _see(_stopping(patience_evals=2), [0.5, 0.25, 0.125]).reason
    assert reason == 'early stopping: `valid/score` was no better than 0.5000 at step 2 in 2 passes'


def test_a_metric_that_never_had_a_value_says_so():
    assert 'never had a value' in _see(_stopping(patience_evals=1), [math.nan]).reason


def test_more_patience_lets_a_stopped_run_go_on():
    stopped = _see(_stopping(patience_evals=2), [3, 2, 1])
    patient = _stopping(patience_evals=3)
    patient.set(stopped.get())
    assert stopped.reason and patient.reason is None


@pytest.mark.parametrize('make', [_best, _stopping])
def test_the_state_of_another_metric_is_left_behind(make, caplog):
    seen = _see(make(), [1, 2])
    state = {**seen.get(), 'metric': 'valid/other'}
    fresh = make()
    fresh.set(state)
    assert fresh.get() == make().get()


@pytest.mark.parametrize('values', [[], [1.0], [2.0, math.inf, -1.0], [math.nan]])
@pytest.mark.parametrize('make', [_best, _stopping])
def test_a_state_survives_json(make, values):
    seen = _see(make(), values)
    again = make()
    again.set(json.loads(json.dumps(seen.get(), allow_nan=False)))
    assert again.get() == seen.get()


def test_a_metric_that_no_set_produces_is_refused_with_those_there_are():
    known = ['valid/loss', 'valid/accuracy']
    text = r'`KeepBest.metric` \[valid/score\]: no evaluation set produces it\..*There are: valid/loss, valid/accuracy'
    with pytest.raises(errors.ConfigurationError, match=text):
        followers.check_metrics([_best()], known)


# In a run: a model whose metric is a script.


def _scripted(series, rate=None):
    """Returns a model_fn whose metric `score` at step N is `series[N / EVERY - 1]`; its weight counts the steps."""

    def model_fn(features, labels, mode):
        del labels
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable('weight', [], initializer=tf.zeros_initializer())
        loss = 0.0 * tf.reduce_sum(features) + weight
        if mode == ModeKeys.EVAL:
            place = tf.clip_by_value(tf.cast(step, tf.int32) // EVERY - 1, 0, len(series) - 1)
            score = tf.constant(series, tf.float32)[place]
            return EstimatorSpec(mode, loss=loss, eval_metric_ops={'score': v1.metrics.mean(score)})
        added = 1.0
        if rate is not None:
            added = v1.get_variable('learning_rate', initializer=rate, trainable=False)
        train_op = tf.group(v1.assign_add(weight, added), v1.assign_add(step, 1))
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    if rate is not None:
        return _with_rate(model_fn, rate)
    return model_fn


def _with_rate(model_fn, rate):
    def with_rate(features, labels, mode):
        if mode == ModeKeys.EVAL:
            v1.get_variable('learning_rate', initializer=rate, trainable=False)
        return model_fn(features, labels, mode)

    return with_rate


SERIES = [0.5, 0.7, 0.6, 0.9, 0.8, 0.9, 0.4, 0.95]  # at steps 2, 4, ...: the best of the first seven is step 8's
FOLLOW = policies.Policies(
    keep_best=policies.KeepBest(metric='valid/score', mode='max', keep=2),
    early_stopping=policies.EarlyStopping(metric='valid/score', mode='max', patience_evals=3),
)


def _kept(tmp_path):
    """Returns the steps that `best/checkpoint` names, in order; those files are there."""
    paths = v1.train.get_checkpoint_state(run_dir.RunDir(tmp_path).best).all_model_checkpoint_paths
    assert all(os.path.exists(f'{path}.index') for path in paths)
    return sorted(int(path.rpartition('-')[2]) for path in paths)


def _weight(prefix):
    return float(testing.checkpoint_values(prefix)['weight'])


def test_a_run_keeps_the_checkpoints_of_its_best_passes_and_stops_by_itself(start, tmp_path):
    # step    2    4    6    8    10   12   14
    # score  .5   .7   .6   .9   .8   .9   .4
    # best    2   4,2  4,6  8,4  8,10 8,12            (of equal ones the earlier is better)
    # wait                       0    1    2    3     ends
    run = start(None, model_fn=_scripted(SERIES), every={'valid': EVERY}, follow=FOLLOW)
    result = run.run()
    assert (result.status, result.global_step, result.exit_code) == ('stopped', 14, 0)
    assert result.stop_reason.startswith('early stopping: `valid/score` was no better than 0.9000 at step 8 in 3')
    assert [step for step, _ in result.best.kept] == [8, 12]
    assert _kept(tmp_path) == [8, 12]
    assert result.best.value == pytest.approx(0.9) and _weight(result.best.checkpoint) == 8.0
    assert v1.train.latest_checkpoint(run_dir.RunDir(tmp_path).best) == result.best.checkpoint


def test_a_checkpoint_stays_in_best_as_long_as_a_commit_names_it(start, tmp_path):
    # A start may have to go on from that commit.
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': FOLLOW}
    start(None, keep_checkpoint_max=1, **settings).run()
    names = os.listdir(run_dir.RunDir(tmp_path).best)
    assert sorted({name.split('.')[1] for name in names if name != 'checkpoint'}) == ['ckpt-12', 'ckpt-8']


def test_a_new_best_pass_is_saved_at_once(start):
    run = start(8, model_fn=_scripted([0.1, 0.3, 0.2, 0.4]), every={'valid': EVERY}, follow=FOLLOW)
    run.run()
    # With 2 kept, the pass at step 6 (0.2) is second best.
    assert [phase for phase in run.phases if phase.startswith('commit')] == [
        'commit @0', 'commit @2', 'commit @4', 'commit @6', 'commit @8',
    ]  # fmt: skip


def _signal_at(number):
    """Returns a hook that sends SIGTERM in its run of this number."""
    runs = [0]

    def after_run(_):
        runs[0] += 1
        if runs[0] == number:
            os.kill(os.getpid(), signal.SIGTERM)

    return testing.RecordingHook(after_run=after_run)


@pytest.mark.parametrize('stop', range(1, 14))
def test_a_run_that_was_stopped_at_any_step_stops_and_keeps_as_one_that_was_not(start, tmp_path, stop):
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': FOLLOW}
    first = start(None, hooks=[_signal_at(stop)], **settings).run()
    assert (first.status, first.global_step) == ('interrupted', stop)
    result = start(None, **settings).run()
    assert (result.status, result.global_step) == ('stopped', 14)
    assert [step for step, _ in result.best.kept] == [8, 12] == _kept(tmp_path)


@pytest.mark.parametrize('stop', range(1, 8))
def test_a_run_that_was_stopped_in_any_pass_makes_that_pass_again(start, make_eval_set, tmp_path, stop):
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': FOLLOW}
    batches = 3
    in_the_middle = _signal_at(batches * (stop - 1) + 2)
    first = start(None, sets=[make_eval_set(hooks=[in_the_middle])], **settings).run()
    assert (first.status, first.global_step) == ('interrupted', EVERY * stop)
    result = start(None, **settings).run()
    assert (result.status, result.global_step) == ('stopped', 14)
    assert [step for step, _ in result.best.kept] == [8, 12] == _kept(tmp_path)


def test_a_run_that_stopped_early_has_nothing_left_to_do(start):
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': FOLLOW}
    start(None, **settings).run()
    again = start(None, **settings)
    result = again.run()
    assert again.phases == [] and result.status == 'stopped' and result.global_step == 14


def test_the_best_checkpoint_stays_when_the_run_removes_its_own(start, tmp_path):
    follow = policies.Policies(keep_best=policies.KeepBest(metric='valid/score', mode='max'))
    settings = {'every': {'valid': EVERY}, 'follow': follow, 'keep_checkpoint_max': 1}
    result = start(8, model_fn=_scripted([0.9, 0.1, 0.2, 0.3]), **settings).run()
    assert _kept(tmp_path) == [2]
    assert not os.path.exists(tmp_path / 'model.ckpt-2.index')
    assert _weight(result.best.checkpoint) == 2.0


# The best weights come back.

RESTORE = policies.agreed(
    None, policies.EarlyStopping(metric='valid/score', mode='max', patience_evals=3, restore_best=True), None
)


def test_the_best_weights_come_back_at_the_end_and_are_evaluated_and_saved(start, make_eval_set, tmp_path):
    run = start(
        None,
        model_fn=_scripted(SERIES),
        every={'valid': EVERY},
        sets=[make_eval_set('valid'), make_eval_set('test')],
        follow=RESTORE,
    )
    result = run.run()
    assert run.phases[-4:] == ['valid @14', 'valid @14', 'test @14', 'commit @14']
    assert result.global_step == 14
    newest = v1.train.latest_checkpoint(str(tmp_path))
    assert _weight(newest) == 8.0 and int(testing.checkpoint_values(newest)['global_step']) == 14
    # The loss of evaluation is the weight: the numbers that are handed over are those of the weights that are.
    assert result.metrics['test']['loss'] == 8.0 and result.metrics['valid']['loss'] == 8.0


def test_the_passes_with_the_best_weights_count_a_second_time_nowhere(start, tmp_path):
    follow = policies.agreed(policies.KeepBest(metric='valid/score', mode='max', keep=3), RESTORE.early_stopping, None)
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': follow}
    result = start(None, **settings).run()
    assert [step for step, _ in result.best.kept] == [8, 12, 10] and _kept(tmp_path) == [8, 10, 12]
    assert 'in 3 passes' in result.stop_reason
    assert 'in 3 passes' in start(None, **settings).run().stop_reason


@pytest.mark.parametrize('stop', [1, 2, 3, 4])
def test_best_weights_come_back_also_when_the_last_passes_were_interrupted(start, make_eval_set, tmp_path, stop):
    # The passes at step 14: valid, then, with the best weights, valid and test.
    sets = [make_eval_set('valid'), make_eval_set('test')]
    before = 6 * 3  # batches of the six passes before
    hook = _signal_at(before + 3 * stop - 1)
    hooked = [make_eval_set('valid', hooks=[hook]), make_eval_set('test', hooks=[hook])]
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}, 'follow': RESTORE}
    start(None, sets=hooked, **settings).run()
    result = start(None, sets=sets, **settings).run()
    assert (result.status, result.global_step) == ('stopped', 14)
    assert _weight(v1.train.latest_checkpoint(str(tmp_path))) == 8.0
    assert result.metrics['test']['loss'] == 8.0 and result.metrics['valid']['loss'] == 8.0


def test_a_run_that_goes_on_from_restored_weights_saves_under_its_own_steps(start, tmp_path):
    settings = {'model_fn': _scripted(SERIES), 'every': {'valid': EVERY}}
    start(None, follow=RESTORE, **settings).run()
    result = start(16, **settings).run()
    assert result.global_step == 16
    newest = v1.train.latest_checkpoint(str(tmp_path))
    assert newest.endswith('model.ckpt-16') and _weight(newest) == 10.0


def test_every_file_in_best_holds_the_weights_of_its_step(start, tmp_path):
    # Also that of the step at which the run stops, whose weights go when the best ones come back.
    follow = policies.agreed(policies.KeepBest(metric='valid/score', mode='max', keep=4), RESTORE.early_stopping, None)
    result = start(None, model_fn=_scripted(SERIES), every={'valid': EVERY}, follow=follow).run()
    assert [step for step, _ in result.best.kept] == [8, 12, 10, 4]
    follow = policies.agreed(policies.KeepBest(metric='valid/score', mode='max', keep=7), RESTORE.early_stopping, None)
    (tmp_path / 'all').mkdir()
    result = start(
        None, model_fn=_scripted(SERIES), every={'valid': EVERY}, follow=follow, directory=tmp_path / 'all'
    ).run()
    for step, _ in result.best.kept:
        assert _weight(str(tmp_path / 'all' / 'best' / f'model.ckpt-{step}')) == step
    assert len(result.best.kept) == 7


def test_a_best_checkpoint_outlives_another_save_of_its_step(start, make_eval_set, tmp_path):
    # Gradient accumulation: the step moves in every fourth run, and a stop in between saves the same step again.
    def model_fn(features, labels, mode):
        del labels
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable('weight', [], initializer=tf.zeros_initializer())
        loss = 0.0 * tf.reduce_sum(features) + weight
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(mode, loss=loss, eval_metric_ops={'score': v1.metrics.mean(-weight)})
        moved = tf.cast(tf.equal(tf.math.floormod(weight, 4.0), 3.0), tf.int64)
        with tf.control_dependencies([moved]):
            return EstimatorSpec(
                mode, loss=loss, train_op=tf.group(v1.assign_add(weight, 1.0), v1.assign_add(step, moved))
            )

    follow = policies.Policies(keep_best=policies.KeepBest(metric='valid/score', mode='max'))
    settings = {'model_fn': model_fn, 'every': {'valid': 2}, 'follow': follow}
    start(4, hooks=[_signal_at(9)], **settings).run()
    assert _weight(str(tmp_path / 'best' / 'model.ckpt-2')) == 8.0
    assert _weight(v1.train.latest_checkpoint(str(tmp_path))) == 9.0
    result = start(4, **settings).run()
    assert result.best.step == 2 and _weight(result.best.checkpoint) == 8.0


def test_a_start_that_follows_nothing_loses_nothing(start, tmp_path):
    settings = {'model_fn': _scripted([0.9, 0.1, 0.2, 0.3]), 'every': {'valid': EVERY}}
    follow = policies.Policies(keep_best=policies.KeepBest(metric='valid/score', mode='max'))
    start(4, follow=follow, **settings).run()
    start(6, sets=[], model_fn=settings['model_fn']).run()
    result = start(8, follow=follow, **settings).run()
    assert result.best.step == 2 and _kept(tmp_path) == [2]


# A learning rate that becomes smaller.

REDUCE = policies.Policies(
    reduce_on_plateau=policies.ReduceOnPlateau(metric='valid/score', mode='max', factor=0.5, patience_evals=2)
)


def _rate(tmp_path):
    return float(testing.checkpoint_values(v1.train.latest_checkpoint(str(tmp_path)))['learning_rate'])


def test_a_rate_becomes_smaller_on_each_plateau(start, tmp_path):
    # step    2    4    6    8    10   12
    # score   5    4    3    2    1    6
    # wait    0    1    2|0  1    2|0  0
    # rate    1    1    .5   .5   .25  .25
    settings = {'every': {'valid': EVERY}, 'follow': REDUCE}
    start(12, model_fn=_scripted([5, 4, 3, 2, 1, 6], rate=1.0), **settings).run()
    assert _rate(tmp_path) == 0.25
    weight = _weight(v1.train.latest_checkpoint(str(tmp_path)))
    assert weight == 6 * 1.0 + 4 * 0.5 + 2 * 0.25


@pytest.mark.parametrize('stop', [1, 4, 6, 7, 11])
def test_a_run_that_was_stopped_at_any_step_has_the_same_rates(start, tmp_path, stop):
    settings = {'every': {'valid': EVERY}, 'follow': REDUCE, 'model_fn': _scripted([5, 4, 3, 2, 1, 6], rate=1.0)}
    start(12, hooks=[_signal_at(stop)], **settings).run()
    start(12, **settings).run()
    assert _rate(tmp_path) == 0.25
    assert _weight(v1.train.latest_checkpoint(str(tmp_path))) == 6 * 1.0 + 4 * 0.5 + 2 * 0.25


@pytest.mark.parametrize('stop', range(1, 7))
def test_a_rate_that_was_reduced_after_the_commit_of_an_interrupted_pass_stays_reduced(
    start, make_eval_set, tmp_path, stop
):
    settings = {'every': {'valid': EVERY}, 'follow': REDUCE, 'model_fn': _scripted([5, 4, 3, 2, 1, 6], rate=1.0)}
    start(12, sets=[make_eval_set(hooks=[_signal_at(3 * (stop - 1) + 2)])], **settings).run()
    start(12, hooks=[_signal_at(1)], **settings).run()
    start(12, **settings).run()
    assert _weight(v1.train.latest_checkpoint(str(tmp_path))) == 6 * 1.0 + 4 * 0.5 + 2 * 0.25


def test_a_rate_that_training_changes_too_is_not_put_back(start, tmp_path):
    def model_fn(features, labels, mode):
        made = _scripted([5, 4, 3, 2, 1, 6], rate=1.0)(features, labels, mode)
        if mode == ModeKeys.EVAL:
            return made
        rate = next(v for v in v1.global_variables() if v.op.name == 'learning_rate')
        with tf.control_dependencies([made.train_op]):
            return EstimatorSpec(mode, loss=made.loss, train_op=v1.assign(rate, rate * 0.9).op)

    settings = {'model_fn': model_fn, 'every': {'valid': EVERY}, 'follow': REDUCE}
    for name, stops in {'whole': [], 'parts': [7, 2]}.items():
        (tmp_path / name).mkdir()
        for stop in stops:
            start(12, hooks=[_signal_at(stop)], directory=tmp_path / name, **settings).run()
        start(12, directory=tmp_path / name, **settings).run()
    whole, parts = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-12')) for name in ('whole', 'parts'))
    assert whole['learning_rate'] == parts['learning_rate']


def test_a_cooldown_keeps_passes_from_counting_and_a_least_value_holds():
    plateau = _plateau(patience_evals=1, factor=0.1, cooldown_evals=1, min_value=0.05)
    # score  5  4   3         2   1
    # rate   1  .1  (cools)   .05
    assert _rates(plateau, [5, 4, 3, 2, 1]) == [1.0, 0.1, 0.1, 0.05, 0.05]


def _plateau(**settings):
    graph = tf.Graph()
    with graph.as_default():
        v1.get_variable('learning_rate', initializer=1.0, trainable=False)
    settings = {'metric': 'valid/score', 'mode': 'max', **settings}
    return followers.Plateau(policies.ReduceOnPlateau(**settings), graph)


def _rates(plateau, series):
    found = []
    graph = plateau._variable.graph
    with v1.Session(graph=graph) as session:
        with graph.as_default():
            session.run(v1.global_variables_initializer())
        for i, value in enumerate(series):
            plateau.saw(_row(i + 1, value))
            plateau.act(session)
            found.append(round(float(session.run(plateau._variable)), 6))
    return found


def test_a_variable_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(
        errors.ConfigurationError, match=r'`ReduceOnPlateau.variable` \[learning_rat\].*`learning_rate`'
    ):
        _plateau(variable='learning_rat')
