"""Every call of a model_fn has the variables of a graph that holds one call only."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1
from tensorflow.python import keras as old_keras  # what code written for TensorFlow 2.4 to 2.12 may still import

from framework import errors
from framework.graph import compiled, sharing
from framework.run_config import EvalSet
from framework.spec import EstimatorSpec, ModeKeys

KEYS = v1.GraphKeys
FEATURES = np.random.RandomState(0).randn(6, 4).astype(np.float32)
LABELS = np.random.RandomState(1).randn(6).astype(np.float32)


# The one graph, and the lone graph of one call that plain code makes.


def input_fn(mode):
    dataset = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    return (dataset.repeat() if mode == ModeKeys.TRAIN else dataset).batch(6, drop_remainder=mode == ModeKeys.TRAIN)


def other_input_fn():
    return input_fn(ModeKeys.EVAL).map(lambda features, labels: ({'x': features}, labels))


def compile_graph(model_fn):
    sets = [EvalSet(input_fn=input_fn), EvalSet(input_fn=other_input_fn, name='other')]
    return compiled.compile_graph(compiled.Model(model_fn, None, None), input_fn, sets, seed=1)


@contextlib.contextmanager
def lone_graph(model_fn, mode):
    with tf.Graph().as_default():
        v1.train.create_global_step()
        yield model_fn(tf.constant(FEATURES), tf.constant(LABELS), mode)


def lone_variables(model_fn, mode=ModeKeys.TRAIN):
    with lone_graph(model_fn, mode):
        return described(v1.global_variables())


def described(variables):
    return [(variable.name, variable.shape.as_list(), variable.dtype.name) for variable in variables]


def variables_of(graph):
    return described(graph.get_collection(KEYS.GLOBAL_VARIABLES))


def value_for(variable):
    """A value that depends on the variable's name alone; positive, since some are variances."""
    seed = sum(map(ord, variable.name))
    return np.random.RandomState(seed).uniform(0.2, 1.0, variable.shape.as_list()).astype(np.float32)


def give_values(session):
    for variable in v1.global_variables():
        if variable.dtype == tf.float32:
            variable.load(value_for(variable), session)


def start(session, built):
    session.run([v1.global_variables_initializer(), v1.local_variables_initializer(), built.init])


def pass_loss(session, built, stream='eval'):
    tower = built.tower(stream)
    session.run([tower.reset, tower.input.initializers[stream]])
    session.run(tower.update)
    return session.run(tower.values['loss'])


def model_of(network, optimizer=lambda: v1.train.GradientDescentOptimizer(0.1), train_in_eval=False):
    def model_fn(features, labels, mode):
        x = features['x'] if isinstance(features, dict) else features
        outputs = v1.layers.flatten(network(x, mode == ModeKeys.TRAIN))
        loss = tf.reduce_mean(tf.square(tf.reduce_mean(outputs, axis=1) - labels))
        trains = train_in_eval or mode == ModeKeys.TRAIN
        train_op = optimizer().minimize(loss, v1.train.get_global_step()) if trains else None
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


# Networks


def by_get_variable(x, training):
    del training
    with v1.variable_scope('outer'):
        hidden = x @ v1.get_variable('w', [4, 3])
    with v1.variable_scope(None, default_name='block'):
        return hidden @ v1.get_variable('w', [3, 2])


def by_default_scopes(x, training):
    del training
    for _ in range(3):
        with v1.variable_scope(None, default_name='block'):
            x = x @ v1.get_variable('w', [4, 4])
    return x


def by_variable(x, training):
    del training
    return x @ tf.Variable(tf.ones([4, 2]), name='w') + v1.Variable([0.5, 0.5], name='b')


def by_nameless_variables(x, training):
    del training
    return x @ tf.Variable(lambda: tf.ones([4, 2])) + tf.Variable(1.0)


def by_variables_in_scopes(x, training):
    del training
    for _ in range(2):
        with tf.name_scope('layer'):
            x = x @ tf.Variable(tf.ones([4, 4]), name='w')
            with v1.name_scope('inner'):
                x += v1.Variable(np.zeros([4], np.float32), name='b')
    return x


def by_three_equal_names(x, training):
    del training
    parts = [tf.Variable([float(i)] * (i + 1), name='b') for i in range(3)]
    return x + tf.add_n([tf.reduce_sum(part) for part in parts])


def by_both_ways(x, training):
    del training
    return x @ v1.get_variable('w', [4, 3]) @ tf.Variable(tf.ones([3, 2]), name='w')


def by_module(x, training):
    del training

    class Linear(tf.Module):
        @tf.Module.with_name_scope
        def __call__(self, x):
            return x @ tf.Variable(tf.ones([4, 4]), name='w')

    return Linear()(Linear()(x))


def by_partitions(x, training):
    del training
    return x @ v1.get_variable('w', [4, 2], partitioner=v1.fixed_size_partitioner(2)).as_tensor()


def v1_dense(x, training):
    del training
    return v1.layers.dense(v1.layers.dense(x, 3, tf.nn.relu), 2)


def v1_batch_normalization(x, training):
    return v1.layers.batch_normalization(v1.layers.batch_normalization(x, training=training), training=training)


def v1_dropout(x, training):
    return v1.layers.dense(v1.layers.dropout(v1.layers.dense(x, 3), training=training), 2)


def v1_conv2d(x, training):
    del training
    image = tf.reshape(x, [-1, 2, 2, 1])
    return v1.layers.conv2d(v1.layers.conv2d(image, 3, 2, padding='same'), 2, 1)


def keras_dense(x, training):
    del training
    return tf_keras.layers.Dense(2)(tf_keras.layers.Dense(3, 'relu')(x))


def keras_batch_normalization(x, training):
    return tf_keras.layers.BatchNormalization()(tf_keras.layers.BatchNormalization()(x, training=training))


def keras_embedding(x, training):
    del training
    return tf_keras.layers.Embedding(5, 3)(tf.cast(tf.clip_by_value(tf.abs(x) * 2, 0, 4), tf.int32))


def keras_lstm(x, training):
    del training
    return tf_keras.layers.LSTM(3)(tf.reshape(x, [-1, 4, 1]))


def keras_sequential(x, training):
    layers = [tf_keras.layers.Dense(3, 'relu'), tf_keras.layers.Dropout(0.5), tf_keras.layers.Dense(2)]
    return tf_keras.Sequential(layers)(x, training=training)


def rnn_cells(x, training):
    del training
    cells = v1.nn.rnn_cell.MultiRNNCell([v1.nn.rnn_cell.LSTMCell(2), v1.nn.rnn_cell.GRUCell(3)])
    return v1.nn.dynamic_rnn(cells, tf.reshape(x, [-1, 2, 2]), dtype=tf.float32)[0]


def feature_columns(x, training):
    del training
    hashed = tf.feature_column.categorical_column_with_hash_bucket('word', 5, tf.int64)
    columns = [tf.feature_column.numeric_column('x', [4]), tf.feature_column.embedding_column(hashed, 2)]
    features = {'x': x, 'word': tf.cast(tf.abs(x[:, :1]) * 3, tf.int64)}
    return v1.layers.dense(v1.feature_column.input_layer(features, columns), 2)


def old_keras_dense(x, training):
    del training
    return old_keras.layers.Dense(2)(old_keras.layers.Dense(3)(x))


def mixture(x, training):
    x = v1.layers.dense(x, 3)
    x = tf_keras.layers.Dense(4)(x)
    x = v1.layers.batch_normalization(v1.layers.dense(x, 4), training=training)
    with v1.variable_scope('head'):
        x = tf_keras.layers.Dense(3)(v1.layers.dense(x, 3))
    return x * tf.Variable(2.0, name='scale') @ v1.get_variable('w', [3, 2])


NETWORKS = [
    by_get_variable,
    by_default_scopes,
    by_variable,
    by_nameless_variables,
    by_variables_in_scopes,
    by_three_equal_names,
    by_both_ways,
    by_module,
    by_partitions,
    v1_dense,
    v1_batch_normalization,
    v1_dropout,
    v1_conv2d,
    keras_dense,
    keras_batch_normalization,
    keras_embedding,
    keras_lstm,
    keras_sequential,
    rnn_cells,
    feature_columns,
    old_keras_dense,
    mixture,
]


@pytest.mark.filterwarnings('ignore:.*rnn_cell')
@pytest.mark.parametrize('network', NETWORKS, ids=lambda network: network.__name__)
def test_the_one_graph_has_the_variables_of_a_lone_graph_and_evaluation_follows_them(network):
    model_fn = model_of(network)
    built = compile_graph(model_fn)

    assert variables_of(built.graph) == lone_variables(model_fn)
    with lone_graph(model_fn, ModeKeys.EVAL) as lone, v1.Session() as session:
        session.run(v1.global_variables_initializer())
        give_values(session)
        expected = session.run(lone.loss)
    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        initial = pass_loss(session, built)
        give_values(session)
        assert len(built.towers) == 2
        assert pass_loss(session, built) != initial
        np.testing.assert_allclose(pass_loss(session, built), expected, rtol=1e-5)
        np.testing.assert_allclose(pass_loss(session, built, 'other'), expected, rtol=1e-5)


@pytest.mark.parametrize('network', [v1_dense, keras_dense, by_variables_in_scopes, mixture])
@pytest.mark.parametrize(
    'optimizer',
    [
        lambda: v1.train.AdamOptimizer(0.1),
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
        lambda: tf_keras.optimizers.legacy.Adam(0.1),
    ],
    ids=['adam', 'momentum', 'keras_adam'],
)
def test_an_optimizer_built_in_both_modes_adds_no_slots(network, optimizer):
    class Minimizing:
        """tf_keras's `minimize` has other arguments."""

        def minimize(self, loss, global_step):
            made = optimizer()
            if isinstance(made, v1.train.Optimizer):
                return made.minimize(loss, global_step)
            updates = made.get_updates(loss, v1.trainable_variables())
            return tf.group(*updates, global_step.assign_add(1))

    model_fn = model_of(network, Minimizing, train_in_eval=True)

    assert variables_of(compile_graph(model_fn).graph) == lone_variables(model_fn)


def test_the_evaluation_loss_is_that_of_the_training_weights():
    built = compile_graph(model_of(by_both_ways))
    first, second = np.arange(12.0).reshape(4, 3), np.array([[1.0, 2], [3, 4], [5, 6]])

    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        for variable, value in zip(v1.trainable_variables(), [first, second], strict=True):
            variable.load(value, session)
        loss = pass_loss(session, built)

    expected = np.mean(((FEATURES @ first @ second).mean(axis=1) - LABELS) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_a_training_step_is_seen_by_the_next_pass():
    built = compile_graph(model_of(keras_dense))

    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        session.run(built.train.input.initializers['train'])
        before = pass_loss(session, built)
        session.run(built.train.spec.train_op)
        after = pass_loss(session, built)

    assert after < before


def test_get_variable_and_a_variable_of_the_same_name_are_not_confused():
    def model_fn(features, labels, mode):
        del features, labels
        w = [v1.get_variable('w', [2], initializer=v1.zeros_initializer()), tf.Variable([1.0, 1.0], name='w')]
        with v1.variable_scope('scope'):
            w += [v1.get_variable('w', [2]), tf.Variable([1.0, 1.0], name='w')]
        seen[mode] = w
        return EstimatorSpec(mode, loss=tf.add_n(w)[0], train_op=tf.no_op())

    seen = {}
    compile_graph(model_fn)

    assert [v.name for v in seen['train']] == ['w:0', 'w_1:0', 'scope/w:0', 'scope/w_1:0']
    assert all(a is b for a, b in zip(seen['train'], seen['eval'], strict=True))


def test_two_get_variable_of_one_name_in_training_raise_as_always():
    def network(x, training):
        del training
        return x @ v1.get_variable('w', [4, 4]) @ v1.get_variable('w', [4, 4])

    with pytest.raises(ValueError, match='Variable w already exists'):
        compile_graph(model_of(network))


def test_reuse_that_a_model_fn_switches_by_mode_works_as_always():
    def network(x, training):
        with v1.variable_scope('net', reuse=not training):
            return v1.layers.dense(x, 2, name='out')

    assert [name for name, *_ in variables_of(compile_graph(model_of(network)).graph)] == [
        'global_step:0',
        'net/out/kernel:0',
        'net/out/bias:0',
    ]


def test_reuse_variables_of_a_model_fn_does_not_reach_the_next_call():
    def network(x, training):
        del training
        made = x @ v1.get_variable('w', [4, 4])
        v1.get_variable_scope().reuse_variables()
        return made @ v1.get_variable('w', [4, 4])

    assert len(variables_of(compile_graph(model_of(network)).graph)) == 2


def test_keras_names_do_not_depend_on_what_the_process_built_before():
    with tf.Graph().as_default():
        tf_keras.layers.Dense(1)(tf.ones([1, 1]))
    tf_keras.layers.Dense(1)(tf.ones([1, 1]))
    names = [name for name, *_ in variables_of(compile_graph(model_of(keras_dense)).graph)]

    assert sorted(names) == ['dense/bias:0', 'dense/kernel:0', 'dense_1/bias:0', 'dense_1/kernel:0', 'global_step:0']


def test_a_custom_getter_of_evaluation_reads_moving_averages():
    def model_fn(features, labels, mode):
        del features, labels
        average = v1.train.ExponentialMovingAverage(0.5)
        training = mode == ModeKeys.TRAIN

        def getter(getter, name, *args, **kwargs):
            return average.average(getter(name, *args, **kwargs))

        def weights():
            return v1.get_variable('w', [], initializer=v1.ones_initializer())

        if training:
            loss = weights()
            step = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_global_step())
            with tf.control_dependencies([step]):
                return EstimatorSpec(mode, loss=loss * 1.0, train_op=average.apply([loss]))
        average.apply([weights()])
        with v1.variable_scope(v1.get_variable_scope(), custom_getter=getter):
            return EstimatorSpec(mode, loss=weights() * 1.0)

    built = compile_graph(model_fn)

    assert [name for name, *_ in variables_of(built.graph)] == ['global_step:0', 'w:0', 'w/ExponentialMovingAverage:0']
    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        session.run(built.train.input.initializers['train'])
        session.run(built.train.spec.train_op)  # w: 1 -> 0, its average: 0.5 * 1 + 0.5 * 0
        assert pass_loss(session, built) == 0.5


@pytest.mark.filterwarnings('ignore:.*set_learning_phase')
def test_the_learning_phase_that_training_sets_does_not_reach_evaluation():
    def network(x, training):
        if training:
            tf_keras.backend.set_learning_phase(True)
        return tf_keras.layers.Dropout(0.5)(x)

    built = compile_graph(lambda features, labels, mode: _weightless(features, labels, mode, network))

    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        np.testing.assert_allclose(pass_loss(session, built), FEATURES.sum(), rtol=1e-5)
        session.run(built.train.input.initializers['train'])
        assert session.run(built.train.spec.loss) != pytest.approx(FEATURES.sum())


def _weightless(features, labels, mode, network):
    del labels
    x = features['x'] if isinstance(features, dict) else features
    loss = tf.reduce_sum(network(x, mode == ModeKeys.TRAIN))
    return EstimatorSpec(mode, loss=loss, train_op=tf.no_op())


@pytest.fixture
def ref_variables():
    v1.disable_resource_variables()
    yield
    v1.enable_resource_variables()


@pytest.mark.usefixtures('ref_variables')
@pytest.mark.parametrize('network', [by_get_variable, v1_dense, keras_dense, mixture])
def test_variables_are_resources_where_the_code_disabled_them(network):
    model_fn = model_of(network, lambda: v1.train.AdamOptimizer(0.1))
    built = compile_graph(model_fn)

    variables = built.graph.get_collection(KEYS.GLOBAL_VARIABLES)
    assert {variable.op.type for variable in variables} == {'VarHandleOp'}
    assert [variable.name for variable in variables] == [name for name, *_ in lone_variables(model_fn)]


# Local variables


def counting_model_fn(make_local):
    """The loss counts the calls of its own mode in a local variable."""

    def model_fn(features, labels, mode):
        del features, labels
        count = make_local().assign_add(1.0)
        return EstimatorSpec(mode, loss=tf.identity(count), train_op=tf.group(count))

    return model_fn


LOCALS = {
    'variable': lambda: v1.Variable(0.0, name='n', trainable=False, collections=[KEYS.LOCAL_VARIABLES]),
    'metric_variable': lambda: v1.Variable(0.0, name='n', trainable=False, collections=[KEYS.METRIC_VARIABLES]),
    'get_local_variable': lambda: v1.get_local_variable('n', [], initializer=v1.zeros_initializer()),
}


@pytest.mark.parametrize('make_local', LOCALS.values(), ids=LOCALS.keys())
def test_a_local_variable_is_shared_by_no_two_calls(make_local):
    built = compile_graph(counting_model_fn(make_local))

    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        session.run(v1.variables_initializer(v1.get_collection(KEYS.METRIC_VARIABLES)))
        assert [session.run(built.train.spec.loss) for _ in range(2)] == [1.0, 2.0]
        assert [session.run(built.towers[0].spec.loss) for _ in range(3)] == [1.0, 2.0, 3.0]
        assert session.run(built.towers[1].spec.loss) == 1.0
        session.run(built.towers[0].reset)
        assert session.run(built.towers[0].spec.loss) == 1.0
        assert session.run(built.towers[1].spec.loss) == 2.0
        assert session.run(built.train.spec.loss) == 3.0


def test_get_local_variable_twice_in_one_evaluation_is_one_variable():
    def model_fn(features, labels, mode):
        del features, labels
        with v1.variable_scope('', reuse=v1.AUTO_REUSE):
            first, second = (v1.get_local_variable('n', [], initializer=v1.zeros_initializer()) for _ in range(2))
        same.append(first is second)
        return EstimatorSpec(mode, loss=first + second, train_op=tf.no_op())

    same = []
    compile_graph(model_fn)

    assert same == [True, True, True]


# Refused, or allowed with a warning


def per_mode(train, evaluate):
    return model_of(lambda x, training: x * tf.reduce_sum(train() if training else evaluate()))


def test_trainable_variables_of_evaluation_alone_are_refused_by_their_names():
    def only_evaluation():
        v1.get_variable('late', [2])
        with tf.name_scope('head'):
            tf_keras.layers.Dense(1)(tf.ones([1, 2]))
        return tf.Variable(1.0, name='extra') * tf.Variable(1.0, name='common')

    text = r'`late`, `head/dense/kernel`, `head/dense/bias`, `extra`: trainable, made by evaluation of eval but not by '
    with pytest.raises(errors.ConfigurationError, match=text + 'training'):
        compile_graph(per_mode(lambda: tf.Variable(1.0, name='common'), only_evaluation))


def test_a_second_variable_of_a_name_in_evaluation_alone_is_refused():
    def twice():
        return tf.Variable(1.0, name='w') + tf.Variable(1.0, name='w')

    with pytest.raises(errors.ConfigurationError, match='`w`: trainable, made by evaluation of eval'):
        compile_graph(per_mode(lambda: tf.Variable(1.0, name='w'), twice))


@pytest.mark.parametrize('swapped', [False, True])
def test_get_variable_in_one_mode_and_a_variable_of_its_name_in_the_other_are_refused(swapped):
    ways = [lambda: v1.get_variable('w', [2]), lambda: tf.Variable([1.0, 2.0], name='w')]

    with pytest.raises(errors.ConfigurationError, match='`w`: trainable, made by evaluation of eval'):
        compile_graph(per_mode(*(reversed(ways) if swapped else ways)))


def test_another_shape_in_evaluation_is_refused_with_both_shapes():
    def two():
        return tf.reduce_sum(tf.Variable([1.0], name='w')) + tf.reduce_sum(tf.Variable([1.0, 2.0], name='w'))

    text = r'(?s)`w` \[\(2,\) float32\] in evaluation of eval is not .* \[\(1,\) float32\].*training made: w \(#1\) '
    text += r'\(1,\) float32, w \(#2\) \(2,\) float32\n  here so far: w \(#1\) \(2,\) float32'
    with pytest.raises(errors.ConfigurationError, match=text):
        compile_graph(per_mode(two, lambda: tf.Variable([1.0, 2.0], name='w')))


@pytest.mark.parametrize(
    'value', [1, np.float64(1.0), lambda: tf.constant(1.0, tf.float64)], ids=['python', 'numpy', 'callable']
)
def test_another_dtype_in_evaluation_is_refused(value):
    def as_float():
        return tf.cast(tf.Variable(value, name='w'), tf.float32)

    text = r'`w` \[\(\) (int32|float64)\] in evaluation of eval is not .* \[\(\) float32\]'
    with pytest.raises(errors.ConfigurationError, match=text):
        compile_graph(per_mode(lambda: tf.Variable(1.0, name='w'), as_float))


def test_another_shape_by_get_variable_in_evaluation_is_refused_by_tensorflow():
    with pytest.raises(ValueError, match=r'share variable w, but specified shape \(3,\) and found shape \(2,\)'):
        compile_graph(per_mode(lambda: v1.get_variable('w', [2]), lambda: v1.get_variable('w', [3])))


def test_an_initial_value_of_a_list_of_tensors_is_shared():
    def listed():
        return tf.Variable([tf.constant(1.0), 2.0], name='w')

    assert len(variables_of(compile_graph(per_mode(listed, listed)).graph)) == 2


COUNTERS = {
    'tf_variable': lambda: tf.Variable(2.0, name='counter', trainable=False),
    'v1_variable': lambda: v1.Variable(2.0, name='counter', trainable=False),
    'get_variable': lambda: v1.get_variable('counter', [], initializer=tf.constant_initializer(2.0), trainable=False),
    'add_weight': lambda: tf_keras.layers.Layer(name='layer').add_weight(
        'counter', [], initializer=tf_keras.initializers.Constant(2.0), trainable=False
    ),
}


@pytest.mark.parametrize('counter', COUNTERS.values(), ids=COUNTERS.keys())
def test_an_untrainable_variable_of_evaluation_alone_is_local_with_a_warning(counter, caplog):
    def weight():
        return tf.Variable(3.0, name='w')

    built = compile_graph(per_mode(weight, lambda: weight() * counter()))

    assert [name for name, *_ in variables_of(built.graph)] == ['global_step:0', 'w:0']
    assert 'counter` is made only by evaluation of eval, so it is not saved.' in caplog.text
    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        expected = np.mean((3 * 2 * FEATURES.mean(axis=1) - LABELS) ** 2)
        np.testing.assert_allclose(pass_loss(session, built), expected, rtol=1e-5)


def test_the_variables_of_an_evaluation_input_fn_are_local(fresh_graph):
    with sharing.local_variables_only('in/', 'the input_fn of valid'):
        made = [tf.random.Generator.from_seed(1).state, v1.get_variable('w', [], trainable=False)]

    assert all(any(other is one for other in fresh_graph.get_collection(KEYS.LOCAL_VARIABLES)) for one in made)
    assert not fresh_graph.get_collection(KEYS.GLOBAL_VARIABLES)


def test_get_variable_in_the_input_fns_makes_a_variable_for_each():
    def scaled(mode):
        c = v1.get_variable('c', [], initializer=v1.ones_initializer(), trainable=False)
        return input_fn(mode).map(lambda features, labels: (features * c, labels))

    sets = [EvalSet(input_fn=scaled, name=name) for name in 'ab']
    built = compiled.compile_graph(compiled.Model(model_of(by_get_variable), None, None), scaled, sets, seed=1)

    local = [name for name, *_ in described(built.graph.get_collection(KEYS.LOCAL_VARIABLES))]
    assert local[:2] == ['framework/a_input/c:0', 'framework/b_input/c:0']
    assert [name for name, *_ in variables_of(built.graph)] == ['global_step:0', 'c:0', 'outer/w:0', 'block/w:0']
    with built.graph.as_default(), v1.Session() as session:
        start(session, built)
        assert pass_loss(session, built, 'a') == pass_loss(session, built, 'b')


def test_a_trainable_variable_of_an_evaluation_input_fn_is_refused():
    with (
        pytest.raises(errors.ConfigurationError, match='`w`: trainable, made by the input_fn of valid'),
        sharing.local_variables_only('in/', 'the input_fn of valid'),
    ):
        tf.Variable(1.0, name='w')
