"""What evaluation hooks write into the model ends with their pass."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import testing
from framework.reporting import rows
from framework.session import detached, evaluation
from framework.session.guard import VariableGuard
from framework.spec import ModeKeys

EXAMPLES = testing.blobs(10, seed=1)  # the set `valid` of the fixtures


class _Swap(testing.RecordingHook):
    """The recipe: assigns the moving averages to the variables before the first batch."""

    def begin(self):
        weights, average = (v for name in ('weights', 'average') for v in v1.global_variables() if v.op.name == name)
        self._swap = weights.assign(average.read_value()).op

    def after_create_session(self, session, coord):
        session.run(self._swap)


class _Write(v1.train.SessionRunHook):
    """Runs an op at the beginning of a pass."""

    def __init__(self, op):
        self._op = op

    def after_create_session(self, session, coord):
        session.run(self._op)


def _averaged_model_fn(features, labels, mode):
    spec = testing.linear_model_fn(features, labels, mode)
    with v1.variable_scope('', reuse=True):
        weights = v1.get_variable('weights')
    average = v1.get_variable('average', weights.shape, initializer=tf.zeros_initializer(), trainable=False)
    if mode == ModeKeys.EVAL:
        return spec
    with tf.control_dependencies([spec.train_op]):
        update = average.assign(0.9 * average.read_value() + 0.1 * weights.read_value())
    return spec._replace(train_op=update.op)


def _numpy_loss(weights):
    """The mean over batches of 4."""
    features, labels = EXAMPLES
    logits = features.astype(np.float64) @ weights
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
    return np.mean([losses[i : i + 4].mean() for i in range(0, len(labels), 4)])


def _forget(directory):
    for path in [*directory.glob('commits/*'), *directory.glob('model.ckpt-*'), directory / 'checkpoint']:
        path.unlink()


def _warnings(caplog):
    return [record.message for record in caplog.records if 'put back' in record.message]


@pytest.fixture
def swapped(start, make_eval_set):
    """Four steps with a pass of swapped weights after each."""
    run = start(
        4,
        every={'valid': 1},
        sets=[make_eval_set(hooks=[_Swap()])],
        model_fn=_averaged_model_fn,
        save_checkpoints_steps=1,
        save_checkpoints_secs=None,
    )
    run.run()
    return run


# The recipe of moving averages.


def test_a_pass_with_swapped_weights_has_the_numbers_of_the_averages(swapped, tmp_path):
    told = swapped.told(rows.PassRow)
    assert [row.step for row in told] == [1, 2, 3, 4]
    for row in told:
        values = testing.checkpoint_values(str(tmp_path / f'model.ckpt-{row.step}'))
        np.testing.assert_allclose(row.metrics['loss'], _numpy_loss(values['average']), rtol=1e-6)
        assert abs(row.metrics['loss'] - _numpy_loss(values['weights'])) > 1e-4


def test_a_run_that_swaps_weights_ends_with_the_bits_of_a_run_without_evaluation(swapped, start, tmp_path):
    with_passes = testing.checkpoint_values(str(tmp_path / 'model.ckpt-4'))
    _forget(tmp_path)
    start(4, sets=[], model_fn=_averaged_model_fn).run()
    without = testing.checkpoint_values(str(tmp_path / 'model.ckpt-4'))
    assert without.keys() == with_passes.keys() == {'weights', 'average', 'global_step'}
    for name, value in without.items():
        assert value.tobytes() == with_passes[name].tobytes()


def test_a_run_that_swaps_weights_warns_once_and_names_the_variable(start, make_eval_set, caplog):
    start(3, every={'valid': 1}, sets=[make_eval_set(hooks=[_Swap()])], model_fn=_averaged_model_fn).run()
    (text,) = _warnings(caplog)
    assert text.startswith('A pass over `valid`, with the hooks _Swap, changed `weights`: put back after this pass')


def test_passes_in_sessions_of_their_own_warn_once_too(start, tmp_path, make_graph, make_eval_set, caplog):
    start(2, sets=[], model_fn=_averaged_model_fn).run()
    sets = [make_eval_set(hooks=[_Swap()])]
    passes = evaluation.Evaluation(make_graph(_averaged_model_fn, None, sets), {'valid': sets[0]})
    apart = detached.DetachedEvaluation(passes)
    for _ in range(2):
        apart.make_passes(str(tmp_path / 'model.ckpt-2'), lambda: False, lambda row: None)
    assert len(_warnings(caplog)) == 1


def test_a_hook_that_fails_half_way_leaves_the_variables_as_they_were(make_graph, make_eval_set):
    # The second batch fails, after the swap of the weights (ones) for the averages (zeros).
    hook = _Swap(after_run=lambda _: 1 / 0 if hook.calls.count('hook.after_run') == 2 else None)
    sets = [make_eval_set(hooks=[hook])]
    built = make_graph(_averaged_model_fn, None, sets)
    passes = evaluation.Evaluation(built, {'valid': sets[0]})
    with built.graph.as_default(), v1.Session() as session:
        passes.begin()
        weights = next(v for v in v1.global_variables() if v.op.name == 'weights')
        session.run([v1.global_variables_initializer(), built.init])
        weights.load(np.ones([4, 2]), session)
        with pytest.raises(ZeroDivisionError):
            passes.make_pass(session, 'valid', 0)
        np.testing.assert_array_equal(session.run(weights), np.ones([4, 2]))


# Values of all kinds.


def _guarded(variables, *hooks, passes=1):
    """Returns the variables after passes with these hooks."""
    guard = VariableGuard()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        v1.get_default_graph().finalize()
        for _ in range(passes):
            with guard.guarded(session, 'valid', hooks):
                for hook in hooks:
                    hook.after_create_session(session, None)
        return session.run(variables)


@pytest.mark.parametrize('resource', [False, True])
@pytest.mark.parametrize(
    ('old', 'new'),
    [
        (np.float32([1, 2]), np.float32([3, 4])),
        (np.float32(np.nan), np.float32(0)),
        (np.float32(0.0), np.float32(-0.0)),
        (np.int64(7), np.int64(8)),
        (np.bool_(True), np.bool_(False)),
        (tf.bfloat16.as_numpy_dtype(1.5), tf.bfloat16.as_numpy_dtype(2)),
    ],
)
def test_numbers_are_put_back_to_the_bit(old, new, resource):
    variable = v1.get_variable('value', initializer=tf.constant(old), use_resource=resource)
    assert _guarded(variable, _Write(variable.assign(new).op), passes=2).tobytes() == old.tobytes()


@pytest.mark.parametrize(('old', 'new'), [(b'a\0', b'a'), ([b'a', b'bc'], [b'a', b'b'])])
def test_strings_are_put_back(old, new):
    variable = v1.get_variable('value', initializer=tf.constant(old), use_resource=True)
    value = _guarded(variable, _Write(variable.assign(new).op), passes=2)
    assert value == old if isinstance(old, bytes) else value.tolist() == old


def test_the_global_step_is_put_back():
    step = v1.train.create_global_step()
    assert _guarded(step, _Write(step.assign_add(5).op)) == 0


def test_variables_of_one_initial_tensor_are_each_put_back():
    # The initial tensor is what values are fed into, and it takes one value a run.
    initial = tf.zeros([2])
    first, second = (v1.Variable(initial, name=name) for name in ('first', 'second'))
    assert first.initializer.inputs[1] is second.initializer.inputs[1]
    write = _Write(tf.group(first.assign([5, 6]), second.assign([7, 8])))
    guard = VariableGuard()
    with v1.Session() as session:
        session.run(tf.group(first.assign([1, 2]), second.assign([3, 4])))
        with guard.guarded(session, 'valid', [write]):
            write.after_create_session(session, None)
        np.testing.assert_array_equal(session.run([first, second]), [[1, 2], [3, 4]])


# Warnings.


def test_nan_that_nobody_changed_is_no_change(caplog):
    variable = v1.get_variable('value', initializer=np.float32([np.nan, 1]))
    _guarded(variable, testing.RecordingHook())
    assert _warnings(caplog) == []


def test_the_warning_counts_further_variables(caplog):
    values = [v1.get_variable(name, initializer=0.0) for name in ('a', 'b', 'c')]
    _guarded(values, _Write(tf.group(*(value.assign(1.0) for value in values))), passes=3)
    (text,) = _warnings(caplog)
    assert 'the hooks _Write, changed `a` and 2 more: put back' in text


def test_every_set_of_hooks_is_warned_of(caplog):
    variable = v1.get_variable('value', initializer=0.0)
    guard, hooks = VariableGuard(), [_Write(variable.assign(1.0).op) for _ in range(2)]
    with v1.Session() as session:
        session.run(variable.initializer)
        for hook in [*hooks, *hooks]:
            with guard.guarded(session, 'valid', [hook]):
                hook.after_create_session(session, None)
    assert len(_warnings(caplog)) == 2


# The cost.


def test_without_hooks_nothing_is_read():
    with VariableGuard().guarded(None, 'valid', []):  # reading would need a session
        pass


@pytest.mark.parametrize('make', [v1.train.FinalOpsHook, lambda op: v1.train.LoggingTensorHook({'w': op}, 1)])
def test_what_hooks_of_tensorflow_write_is_put_back_too(make_graph, make_eval_set, make):
    class Writes(v1.train.SessionRunHook):
        """Makes the hook where its op can be made."""

        def begin(self):
            weights = next(v for v in v1.global_variables() if v.op.name == 'weights')
            self.hook = make(tf.identity(weights.assign(tf.ones_like(weights))))
            self.hook.begin()

        def before_run(self, run_context):
            return self.hook.before_run(run_context)

        def after_run(self, run_context, run_values):
            self.hook.after_run(run_context, run_values)

        def end(self, session):
            self.hook.end(session)

    sets = [make_eval_set(hooks=[Writes()])]
    built = make_graph(_averaged_model_fn, None, sets)
    passes = evaluation.Evaluation(built, {'valid': sets[0]})
    with built.graph.as_default(), v1.Session() as session:
        passes.begin()
        weights = next(v for v in v1.global_variables() if v.op.name == 'weights')
        session.run([v1.global_variables_initializer(), built.init])
        before = session.run(weights)
        passes.make_pass(session, 'valid', 0)
        np.testing.assert_array_equal(session.run(weights), before)


def test_a_finalized_graph_suffices():
    variable = v1.get_variable('value', initializer=0.0)
    assert _guarded(variable, _Write(variable.assign(1.0).op)) == 0.0
    assert v1.get_default_graph().finalized
