"""Each call of a model_fn sees its own collections; variables belong to the graph."""

import time

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1

from framework.graph import collections, compiled, movement
from framework.run_config import EvalSet
from framework.spec import EstimatorSpec, ModeKeys

KEYS = v1.GraphKeys
FEATURES = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def input_fn(mode):
    scale = 1.0 if mode == ModeKeys.TRAIN else 10.0
    return tf.data.Dataset.from_tensors(FEATURES * scale)


def other_input_fn():
    return input_fn(ModeKeys.EVAL).map(lambda features: {'x': features})


def compile_graph(model_fn, *, train=True, sets=None):
    sets = [EvalSet(input_fn=input_fn)] if sets is None else sets
    return compiled.compile_graph(compiled.Model(model_fn, None, None), input_fn if train else None, sets, seed=1)


def weights_of(x, **kwargs):
    return x @ v1.get_variable('w', [2, 1], initializer=v1.ones_initializer(), **kwargs)


def gradient_step(loss):
    return v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())


def session_for(built):
    session = v1.Session(graph=built.graph)
    with built.graph.as_default():
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer(), built.init])
    if built.train is not None:
        session.run(list(built.train.input.initializers.values()))
    session.run([op for tower in built.towers for op in tower.input.initializers.values()])
    return session


def ancestors(*ops):
    """The ops that a session runs for these."""
    seen, stack = set(), list(ops)
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack.extend([*(value.op for value in op.inputs), *op.control_inputs])
    return seen


# take, show, shown


def test_what_is_taken_can_be_shown_again_in_its_order(fresh_graph):
    v1.add_to_collection('mine', 1)
    v1.add_to_collection('mine', 2)
    taken = collections.take(fresh_graph)
    collections.show(fresh_graph, collections.EMPTY)
    assert fresh_graph.get_collection('mine') == []

    v1.add_to_collection('mine', 3)
    collections.show(fresh_graph, taken)

    assert fresh_graph.get_collection('mine') == [1, 2]
    assert taken.get('mine') == (1, 2)
    assert taken.get('nobody filled it') == ()


def test_shown_gives_the_former_collections_back_after_an_error(fresh_graph):
    v1.add_to_collection('mine', 'outside')

    with pytest.raises(KeyError), collections.shown(fresh_graph, collections.Snapshot({'mine': ('inside',)})):
        assert fresh_graph.get_collection('mine') == ['inside']
        v1.add_to_collection('another', 1)
        raise KeyError

    assert fresh_graph.get_collection('mine') == ['outside']
    assert fresh_graph.get_collection('another') == []


@pytest.mark.parametrize(
    'name',
    ['global_variables', 'local_variables', 'trainable_variables', 'model_variables', 'moving_average_variables'],
)
def test_variables_stay_common(name, fresh_graph):
    key = getattr(KEYS, name.upper())

    with collections.shown(fresh_graph, collections.EMPTY):
        variable = v1.Variable(1.0, collections=[key], trainable=False)

    assert fresh_graph.get_collection(key) == [variable]


def test_the_variable_store_is_not_a_collection_of_a_call(fresh_graph):
    with v1.variable_scope('scope'):
        first = v1.get_variable('w', [])

    with (
        collections.shown(fresh_graph, collections.EMPTY),
        v1.variable_scope('scope', reuse=v1.AUTO_REUSE),
    ):
        assert v1.get_variable('w', []) is first


def test_the_global_step_stays_common(fresh_graph):
    step = v1.train.create_global_step()

    with collections.shown(fresh_graph, collections.EMPTY):
        assert v1.train.get_global_step() is step
        assert v1.train.get_or_create_global_step() is step


# In the one graph

CUSTOM_KEYS = ['mine', '_private', 3]


def collecting_model_fn(features, labels, mode):
    del labels
    x = features['x'] if isinstance(features, dict) else features
    v1.losses.absolute_difference(x[:, :1], weights_of(x))
    v1.summary.scalar('mean', tf.reduce_mean(x))
    v1.add_to_collection(KEYS.UPDATE_OPS, tf.no_op(f'update_{mode}'))
    for key in CUSTOM_KEYS:
        v1.add_to_collection(key, mode)
    seen.append({key: v1.get_collection(key) for key in COLLECTED})
    loss = v1.losses.get_total_loss()
    return EstimatorSpec(mode, loss=loss, train_op=gradient_step(loss) if mode == ModeKeys.TRAIN else None)


COLLECTED = [KEYS.LOSSES, KEYS.SUMMARIES, KEYS.UPDATE_OPS, *CUSTOM_KEYS]
seen: list[dict] = []


@pytest.fixture
def collected():
    seen.clear()
    built = compile_graph(
        collecting_model_fn, sets=[EvalSet(input_fn=input_fn), EvalSet(input_fn=other_input_fn, name='o')]
    )
    return built, list(seen)


@pytest.mark.parametrize('key', COLLECTED)
def test_each_call_sees_only_what_it_added(key, collected):
    _, in_calls = collected

    assert [len(call[key]) for call in in_calls] == [1, 1, 1]


@pytest.mark.parametrize('key', COLLECTED)
def test_after_the_build_the_graph_shows_those_of_training(key, collected):
    built, in_calls = collected

    assert built.graph.get_collection(key) == in_calls[0][key]
    assert list(built.train.collections.get(key)) == in_calls[0][key]
    assert [list(tower.collections.get(key)) for tower in built.towers] == [call[key] for call in in_calls[1:]]


def test_summaries_of_tensorflow_2_are_those_of_each_call(tmp_path):
    def model_fn(features, labels, mode):
        del labels
        with tf.summary.create_file_writer(str(tmp_path)).as_default(step=v1.train.get_global_step()):
            tf.summary.scalar('mean', tf.reduce_mean(features))
        counts.append(len(v1.summary.all_v2_summary_ops()))
        return EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.no_op())

    counts = []
    built = compile_graph(model_fn)

    assert counts == [1, 1]
    with built.graph.as_default():
        assert len(v1.summary.all_v2_summary_ops()) == 1


def test_no_op_of_training_depends_on_evaluation(collected):
    built, _ = collected
    spec = built.train.spec
    with built.graph.as_default():
        summary = v1.summary.merge_all()
    updates = built.graph.get_collection(KEYS.UPDATE_OPS)
    iterators = {name for tower in built.towers for name in tower.input.ends}
    assert len(iterators) == 2

    run_by_training = {
        op.name for op in ancestors(spec.train_op, spec.loss.op, summary.op, built.train.step_after.op, *updates)
    }

    assert built.train.input.ends <= run_by_training
    assert not iterators & run_by_training
    assert not [name for name in run_by_training if name.startswith('eval/')]
    for tower in built.towers:
        run_by_evaluation = {op.name for op in ancestors(tower.update, *(value.op for value in tower.values.values()))}
        assert not built.train.input.ends & run_by_evaluation
        assert spec.train_op.name not in run_by_evaluation


def test_a_pass_takes_no_training_batch_and_training_takes_no_evaluation_batch():
    built = compile_graph(collecting_model_fn)

    with session_for(built) as session:
        session.run(built.towers[0].update)
        session.run(built.train.spec.train_op)
        for op in (built.towers[0].update, built.train.spec.train_op):
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(op)


# Losses


def test_the_total_loss_of_evaluation_is_its_own_losses_and_the_weight_regularization_of_training():
    def model_fn(features, labels, mode):
        del labels
        outputs = weights_of(features, regularizer=tf_keras.regularizers.L2(0.5))
        hidden = v1.layers.dense(
            features,
            1,
            kernel_initializer=v1.ones_initializer(),
            kernel_regularizer=tf_keras.regularizers.L2(0.25),
            activity_regularizer=tf_keras.regularizers.L2(0.125),
        )
        v1.losses.mean_squared_error(features[:, :1], outputs + 0 * hidden)
        loss = v1.losses.get_total_loss()
        return EstimatorSpec(mode, loss=loss, train_op=gradient_step(loss))

    def expected(features):
        outputs = features @ np.ones([2, 1])
        activity = 0.125 * np.sum(outputs**2) / len(features)  # Keras divides by the batch
        return np.mean((outputs - features[:, :1]) ** 2) + 0.5 * 2 + 0.25 * 2 + activity

    built = compile_graph(model_fn)

    with session_for(built) as session:
        np.testing.assert_allclose(session.run(built.towers[0].spec.loss), expected(FEATURES * 10), rtol=1e-6)
        np.testing.assert_allclose(session.run(built.train.spec.loss), expected(FEATURES), rtol=1e-6)


@pytest.mark.parametrize('train', [True, False], ids=['with_training', 'evaluation_only'])
def test_every_tower_has_the_weight_regularization(train):
    def model_fn(features, labels, mode):
        del labels
        x = features['x'] if isinstance(features, dict) else features
        v1.losses.mean_squared_error(x[:, :1], weights_of(x, regularizer=tf_keras.regularizers.L2(0.5)))
        return EstimatorSpec(mode, loss=v1.losses.get_regularization_loss(), train_op=tf.no_op())

    sets = [EvalSet(input_fn=input_fn, name='a'), EvalSet(input_fn=other_input_fn, name='b')]
    built = compile_graph(model_fn, train=train, sets=sets)

    with session_for(built) as session:
        assert session.run([tower.spec.loss for tower in built.towers]) == [1.0, 1.0]


def test_a_loss_that_depends_on_the_batch_through_a_control_input_is_left_out():
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(3))
    batch = iterator.get_next()
    with tf.control_dependencies([batch]):
        through_control = tf.constant(1.0) + 1.0
    of_weight = v1.get_variable('w', []) * 2.0
    losses = (tf.cast(batch, tf.float32), through_control, of_weight)

    kept = collections.batch_free_regularization(collections.Snapshot({KEYS.REGULARIZATION_LOSSES: losses, 'o': (1,)}))

    assert kept == (of_weight,)


def test_many_losses_of_a_deep_network_take_time_in_proportion():
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(1.0))
    of_batch, of_weight, losses = iterator.get_next(), v1.get_variable('w', []) * 1.0, []
    for _ in range(500):
        of_batch, of_weight = of_batch * 2.0, of_weight * 2.0
        losses += [of_weight, of_batch + of_weight]

    start = time.process_time()
    assert len(list(movement.ancestors(losses))) > 2000
    walk = time.process_time() - start
    start = time.process_time()
    kept = collections.batch_free_regularization(collections.Snapshot({KEYS.REGULARIZATION_LOSSES: tuple(losses)}))

    assert kept == tuple(losses[::2])
    assert time.process_time() - start < 50 * walk  # a walk for each loss: several hundred


# Tables


def lookup(keys):
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(['a', 'b']), tf.constant([1.0, 2.0]))
    return tf.lookup.StaticHashTable(initializer, -1.0).lookup(keys)


def test_tables_of_each_call_are_initialised():
    def model_fn(features, labels, mode):
        del features, labels
        return EstimatorSpec(mode, loss=tf.reduce_sum(lookup(tf.constant(['a', 'b', 'c']))), train_op=tf.no_op())

    built = compile_graph(model_fn)

    assert len(built.graph.get_collection(KEYS.TABLE_INITIALIZERS)) == 1
    with session_for(built) as session:
        assert session.run(built.towers[0].spec.loss) == 2.0  # by Compiled.init alone
        session.run(built.train.collections.get(KEYS.TABLE_INITIALIZERS))
        assert session.run(built.train.spec.loss) == 2.0


@pytest.mark.parametrize('train', [True, False], ids=['with_training', 'evaluation_only'])
def test_a_table_that_an_input_fn_captures_is_initialised(train):
    def words(mode):
        known = ['a', 'a'] if mode == ModeKeys.TRAIN else ['a', 'b', 'c']
        initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(['a', 'b']), tf.constant([1.0, 2.0]))
        table = tf.lookup.StaticHashTable(initializer, -1.0)
        return tf.data.Dataset.from_tensor_slices(known).batch(3).map(table.lookup)

    def model_fn(features, mode):
        return EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.no_op())

    model = compiled.Model(model_fn, None, None)
    sets = [EvalSet(input_fn=words), EvalSet(input_fn=words, name='again')]
    built = compiled.compile_graph(model, words if train else None, sets, seed=1)

    with session_for(built) as session:
        assert session.run(built.towers[0].spec.loss) == 2.0
        with built.graph.as_default():
            session.run(v1.tables_initializer())
        assert not train or session.run(built.train.spec.loss) == 2.0


def test_the_training_call_sees_what_its_input_fn_collected():
    def collecting_input_fn(mode):
        v1.add_to_collection('files', mode)
        return input_fn(mode)

    def model_fn(features, mode):
        files.append(v1.get_collection('files'))
        return EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.no_op())

    files = []
    model = compiled.Model(model_fn, None, None)
    built = compiled.compile_graph(model, collecting_input_fn, [EvalSet(input_fn=collecting_input_fn)], seed=1)

    assert files[0] == ['train']
    assert built.graph.get_collection('files') == ['train']
