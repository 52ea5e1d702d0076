"""One graph of one training call and evaluation towers."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1

from framework import errors, testing
from framework.graph import compiled
from framework.run_config import EvalSet
from framework.spec import EstimatorSpec, ModeKeys

KEYS = v1.GraphKeys
FEATURES, LABELS = testing.blobs(10)
INPUT_FN = testing.array_input_fn(FEATURES, LABELS, batch_size=4)


def named_sets(count, input_fn=INPUT_FN):
    return [EvalSet(input_fn=input_fn, name=f'set_{i}') for i in range(count)]


def compile_graph(model_fn=testing.linear_model_fn, train=INPUT_FN, sets=None, **kwargs):
    sets = [EvalSet(input_fn=INPUT_FN)] if sets is None else sets
    return compiled.compile_graph(compiled.Model(model_fn, None, None), train, sets, **{'seed': 1, **kwargs})


def lone_graph(model_fn, mode, seed=1):
    """Returns a graph of one call, made by plain code."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(seed)
        v1.train.create_global_step()
        model_fn(v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.int64, [None]), mode)
    return graph


def described(variables):
    return [(variable.name, variable.shape.as_list(), variable.dtype.name) for variable in variables]


def session_for(built):
    session = v1.Session(graph=built.graph)
    with built.graph.as_default():
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer(), built.init])
    if built.train is not None:
        session.run(list(built.train.input.initializers.values()))
    return session


def full_pass(session, built, stream='eval'):
    """Returns the metrics and the number of examples of a pass."""
    tower, examples = built.tower(stream), 0
    session.run(tower.reset)
    session.run(tower.input.initializers[stream])
    try:
        while True:
            examples += session.run([tower.input.examples, tower.update])[0]
    except tf.errors.OutOfRangeError as error:
        assert tower.input.ended(error)
    return session.run(dict(tower.values)), examples


# The calls


def test_model_fn_is_called_once_for_training_and_once_for_each_tower():
    def model_fn(features, labels, mode, params, config):
        calls.append((mode, params, config))
        x = features['x'] if isinstance(features, dict) else features
        return testing.linear_model_fn(x, labels, mode)

    def other_input_fn(mode):
        return INPUT_FN(mode).map(lambda features, labels: ({'x': features}, labels))

    calls = []
    sets = [*named_sets(3), EvalSet(input_fn=other_input_fn, name='other')]
    built = compiled.compile_graph(compiled.Model(model_fn, {'a': 1}, 'config'), INPUT_FN, sets, seed=1)

    assert calls == [(mode, {'a': 1}, 'config') for mode in ('train', 'eval', 'eval')]
    assert [list(tower.sources) for tower in built.towers] == [['set_0', 'set_1', 'set_2'], ['other']]
    assert [tower.name for tower in built.towers] == ['tower_0', 'tower_1']
    assert built.tower('set_2') is built.towers[0]
    assert built.tower('other') is built.towers[1]


def test_each_input_fn_is_called_once_training_first():
    def counted(name):
        def input_fn(mode):
            calls.append((name, mode))
            return INPUT_FN(mode)

        return input_fn

    calls = []
    sets = [EvalSet(input_fn=counted(name), name=name) for name in ('b', 'a')]
    compile_graph(train=counted('train'), sets=sets)

    assert calls == [('train', ModeKeys.TRAIN), ('b', ModeKeys.EVAL), ('a', ModeKeys.EVAL)]


def test_a_training_without_evaluation_is_compiled():
    built = compile_graph(sets=[])

    assert built.towers == []
    with session_for(built) as session:
        assert session.run([built.train.spec.train_op, built.train.step_after])[1] == 1


def test_a_pass_gives_the_metrics_of_the_whole_set():
    built = compile_graph()
    weights = np.random.RandomState(0).randn(4, 2)

    with session_for(built) as session, built.graph.as_default():
        v1.trainable_variables()[0].load(weights, session)
        values, examples = full_pass(session, built)

    logits = FEATURES @ weights
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(10), LABELS]
    batches = [losses[:4].mean(), losses[4:8].mean(), losses[8:].mean()]
    assert examples == 10
    assert list(values) == ['accuracy', 'loss', 'loss_per_example']
    np.testing.assert_allclose(values['accuracy'], np.mean(logits.argmax(axis=1) == LABELS), rtol=1e-6)
    np.testing.assert_allclose(values['loss'], np.mean(batches), rtol=1e-5)


def test_training_goes_as_in_a_lone_graph_and_tells_the_step_after():
    built = compile_graph()
    weights, steps = np.zeros([4, 2]), []

    with session_for(built) as session, built.graph.as_default():
        for examples in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]):
            steps.append(session.run([built.train.spec.train_op, built.train.step_after])[1])
            full_pass(session, built)
            x, y = FEATURES[examples], LABELS[examples]
            probabilities = np.exp(x @ weights) / np.exp(x @ weights).sum(axis=1, keepdims=True)
            weights -= 0.1 * x.T @ (probabilities - np.eye(2)[y]) / len(x)
        result = session.run(v1.trainable_variables()[0])

    assert steps == [1, 2, 3]
    np.testing.assert_allclose(result, weights, rtol=1e-4, atol=1e-6)


# Metrics


def mean_of_features_model_fn(features, labels, mode):
    del labels
    total = tf.reduce_sum(features)
    keras_mean = tf_keras.metrics.Mean(name='keras_mean')
    keras_mean.update_state(features)
    metrics = {'mean': v1.metrics.mean(features), 'keras_mean': keras_mean}
    train_op = v1.train.get_global_step().assign_add(1)
    return EstimatorSpec(mode, loss=total, train_op=train_op, eval_metric_ops=metrics)


def numbers(*values):
    return lambda: tf.data.Dataset.from_tensor_slices(np.array(values, np.float32)).batch(2)


def test_a_metric_is_shared_by_no_two_calls_and_adds_no_saved_variable():
    sets = [
        EvalSet(input_fn=numbers(1, 2, 6), name='a'),
        EvalSet(input_fn=lambda: numbers(5)().map(lambda x: tf.ensure_shape(x, [1])), name='b'),
    ]
    built = compile_graph(mean_of_features_model_fn, numbers(10, 20), sets)
    local = built.graph.get_collection(KEYS.LOCAL_VARIABLES)

    assert described(built.graph.get_collection(KEYS.GLOBAL_VARIABLES)) == [('global_step:0', [], 'int64')]
    assert len(local) == len({id(variable) for variable in local}) == len({variable.name for variable in local})
    assert len(local) == 2 * 2 * 3 + 2 * 2 * 2  # total and count: of two metrics in three calls, of two losses in two

    with session_for(built) as session:
        train_metrics = built.train.spec.eval_metric_ops
        for name in train_metrics:
            session.run(train_metrics[name][1])
            session.run(list(built.train.input.initializers.values()))
        for stream, expected in [('a', 3.0), ('b', 5.0), ('a', 3.0)]:
            values, _ = full_pass(session, built, stream)
            assert (values['mean'], values['keras_mean']) == (expected, expected)
        assert {name: session.run(value) for name, (value, _) in train_metrics.items()} == {
            'mean': 15.0,
            'keras_mean': 15.0,
        }


def test_a_reset_forgets_the_pass_before():
    built = compile_graph(mean_of_features_model_fn, numbers(10), [EvalSet(input_fn=numbers(1, 2, 6))])

    with session_for(built) as session:
        tower = built.towers[0]
        session.run(tower.input.initializers['eval'])
        session.run(tower.update)
        assert session.run(dict(tower.values)) == {
            'mean': 1.5,
            'keras_mean': 1.5,
            'loss': 3.0,
            'loss_per_example': 3.0,
        }
        session.run(tower.reset)
        session.run(tower.update)
        assert session.run(dict(tower.values)) == {'mean': 6.0, 'keras_mean': 6.0, 'loss': 6.0, 'loss_per_example': 6.0}


def test_the_order_of_the_metrics_does_not_depend_on_the_dict():
    def model_fn(reverse):
        def ordered(features, mode):
            metrics = {name: v1.metrics.mean(features, name=name) for name in 'zma'}
            metrics = dict(reversed(metrics.items())) if reverse else metrics
            return EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.no_op(), eval_metric_ops=metrics)

        return ordered

    built = [compile_graph(model_fn(reverse), numbers(1), [EvalSet(input_fn=numbers(1))]) for reverse in (False, True)]

    assert [list(each.towers[0].values) for each in built] == [['a', 'loss', 'loss_per_example', 'm', 'z']] * 2
    assert built[0].graph.as_graph_def() == built[1].graph.as_graph_def()


# Size and names


def ops_outside_of_inputs(built):
    names = [op.name for op in built.graph.get_operations()]
    return [name for name in names if not (name.startswith('framework/') and '_input/' in name)]


def test_ten_sets_make_as_many_ops_as_one_but_for_their_datasets():
    one, ten = (compile_graph(sets=named_sets(count)) for count in (1, 10))

    assert ops_outside_of_inputs(ten) == ops_outside_of_inputs(one)


def test_evaluation_changes_no_op_of_training():
    def training_part(built):
        nodes = built.graph.as_graph_def().node
        end = next(i for i, node in enumerate(nodes) if node.name == built.train.step_after.op.name)
        return list(nodes)[: end + 1]

    alone, accompanied = compile_graph(dropout_model_fn, sets=[]), compile_graph(dropout_model_fn, sets=named_sets(2))

    assert training_part(alone) == training_part(accompanied)


def dropout_model_fn(features, labels, mode):
    training = mode == ModeKeys.TRAIN
    hidden = tf_keras.layers.Dense(3)(v1.layers.dropout(v1.layers.dense(features, 8), training=training))
    hidden = tf_keras.layers.Dropout(0.5)(hidden, training=training) + tf.Variable(tf.random.normal([3]))
    loss = tf.reduce_mean(tf.square(hidden - tf.cast(labels, tf.float32)[:, None]))
    train_op = v1.train.AdamOptimizer().minimize(loss, v1.train.get_global_step()) if training else None
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def model_ops(graph):
    others = ('framework/', 'eval/', 'Placeholder')
    return [op.name for op in graph.get_operations() if not op.name.startswith(others)]


def test_the_ops_of_training_have_the_names_of_a_lone_graph():
    built = compile_graph(dropout_model_fn, sets=named_sets(2))

    assert model_ops(built.graph) == model_ops(lone_graph(dropout_model_fn, ModeKeys.TRAIN))


def test_an_evaluation_only_graph_has_the_names_of_a_lone_graph():
    lone = lone_graph(dropout_model_fn, ModeKeys.EVAL)
    built = compile_graph(dropout_model_fn, train=None)

    assert built.train is None
    assert model_ops(built.graph) == model_ops(lone)
    variables = lone.get_collection(KEYS.GLOBAL_VARIABLES)
    assert described(built.graph.get_collection(KEYS.GLOBAL_VARIABLES)) == described(variables)


def test_the_second_tower_of_an_evaluation_only_graph_shares_the_variables_of_the_first():
    sets = [*named_sets(1), EvalSet(input_fn=lambda mode: INPUT_FN(mode).take(1).repeat(2).map(fixed), name='fixed')]
    built = compile_graph(dropout_model_fn, train=None, sets=sets)

    variables = lone_graph(dropout_model_fn, ModeKeys.EVAL).get_collection(KEYS.GLOBAL_VARIABLES)
    assert len(built.towers) == 2
    assert described(built.graph.get_collection(KEYS.GLOBAL_VARIABLES)) == described(variables)


def fixed(features, labels):
    return tf.ensure_shape(features, [4, 4]), tf.ensure_shape(labels, [4])


def test_an_evaluation_only_error_calls_the_first_tower_by_its_set():
    def model_fn(features, labels, mode):
        del labels
        w = tf.Variable([0.0] * (features.shape[0] or 1), name='w')
        return EstimatorSpec(mode, loss=tf.reduce_sum(w))

    sets = [*named_sets(1), EvalSet(input_fn=lambda mode: INPUT_FN(mode).take(1).map(fixed), name='fixed')]
    text = r'`w` \[\(4,\) float32\] in evaluation of fixed is not the variable that evaluation of set_0 made'
    with pytest.raises(errors.ConfigurationError, match=text):
        compile_graph(model_fn, train=None, sets=sets)


# Structures


def widened(mode):
    return INPUT_FN(mode).map(lambda features, labels: (tf.concat([features, features], axis=1), labels))


def test_another_structure_than_training_warns_and_gets_a_tower_of_its_own(caplog):
    def model_fn(features, labels, mode):
        return testing.linear_model_fn(features[:, :4], labels, mode)

    built = compile_graph(model_fn, sets=[EvalSet(input_fn=INPUT_FN), EvalSet(input_fn=widened, name='wide')])

    assert len(built.towers) == 2
    assert 'Evaluation of wide has elements of another structure than training.' in caplog.text
    assert 'Evaluation of eval' not in caplog.text


def test_another_structure_than_training_is_refused_where_equal_ones_are_required():
    sets = [EvalSet(input_fn=widened, name='wide')]

    with pytest.raises(
        errors.ConfigurationError, match=r'(?s)Evaluation of wide .*`Experiment.require_equal_structures`'
    ):
        compile_graph(sets=sets, require_equal_structures=True)


# Seeds


def initial_values(seed, sets=(), model_fn=dropout_model_fn):
    with session_for(compile_graph(model_fn, sets=sets, seed=seed)) as session, session.graph.as_default():
        return {variable.name: session.run(variable) for variable in v1.trainable_variables()}


def test_a_seed_gives_the_same_initial_values_with_and_without_evaluation():
    random.seed(5)
    first = initial_values(3)
    random.seed(6)
    second = initial_values(3, sets=named_sets(2))

    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_another_seed_gives_other_initial_values():
    first, second = initial_values(3), initial_values(4)

    drawn = [name for name in first if 'bias' not in name]
    assert drawn == ['dense/kernel:0', 'dense_1/kernel:0', 'Variable:0']
    assert not any(np.array_equal(first[name], second[name]) for name in drawn)


def test_the_initial_values_are_those_of_a_lone_graph_of_the_same_seed():
    def model_fn(features, labels, mode):
        del labels
        w = v1.get_variable('w', [3], initializer=v1.random_normal_initializer(seed=7))
        return EstimatorSpec(mode, loss=tf.reduce_sum(features) + w[0], train_op=tf.no_op())

    with v1.Session(graph=lone_graph(model_fn, ModeKeys.TRAIN, seed=3)) as session, session.graph.as_default():
        session.run(v1.global_variables_initializer())
        expected = session.run(v1.trainable_variables()[0])

    np.testing.assert_array_equal(initial_values(3, model_fn=model_fn)['w:0'], expected)


@pytest.mark.parametrize('fails', [False, True])
def test_the_global_generators_go_on_as_if_nothing_was_compiled(fails):
    def model_fn(features, labels, mode):
        drawn.append((random.random(), np.random.rand()))
        if fails:
            raise KeyError('of the user')
        return testing.linear_model_fn(features, labels, mode)

    drawn = []
    random.seed(11)
    np.random.seed(12)
    expected = random.Random(11).random(), np.random.RandomState(12).rand()
    for _ in range(2):
        if fails:
            with pytest.raises(KeyError, match='of the user'):
                compile_graph(model_fn, seed=2**40 + 3)
        else:
            compile_graph(model_fn, seed=2**40 + 3)

    assert (random.random(), np.random.rand()) == expected
    assert drawn[: len(drawn) // 2] == drawn[len(drawn) // 2 :]
    assert drawn[0] == (random.Random(2**40 + 3).random(), np.random.RandomState((2**40 + 3) % 2**32).rand())


def test_the_default_graph_outside_is_left_alone(fresh_graph):
    compile_graph()

    assert fresh_graph.get_operations() == []
    assert v1.get_default_graph() is fresh_graph


# Scaffolds


def scaffold_model_fn(make_scaffold):
    def model_fn(features, labels, mode):
        return testing.linear_model_fn(features, labels, mode)._replace(scaffold=make_scaffold(mode))

    return model_fn


def only_in_evaluation(**kwargs):
    def make(mode):
        if mode == ModeKeys.TRAIN:
            return None
        return v1.train.Scaffold(**{name: value() for name, value in kwargs.items()})

    return make


def test_a_set_whose_scaffold_has_a_saver_is_set_apart_with_the_reason():
    built = compile_graph(scaffold_model_fn(only_in_evaluation(saver=v1.train.Saver)))

    assert list(built.apart) == ['eval']
    assert 'saver of its own' in built.apart['eval']


def test_a_saver_of_an_evaluation_only_graph_is_kept():
    built = compile_graph(scaffold_model_fn(only_in_evaluation(saver=v1.train.Saver)), train=None)

    compiled.check_scaffolds(built)

    assert built.towers[0].spec.scaffold.saver is not None


def test_other_fields_of_an_evaluation_scaffold_are_ignored_with_a_warning(caplog):
    built = compile_graph(scaffold_model_fn(only_in_evaluation(init_op=tf.no_op, summary_op=lambda: tf.constant(''))))

    compiled.check_scaffolds(built)

    assert 'Scaffold of evaluation: init_op, summary_op ignored; training governs the session.' in caplog.text


def test_an_empty_scaffold_and_a_local_init_op_of_evaluation_are_fine(caplog):
    for make in (only_in_evaluation(), only_in_evaluation(local_init_op=tf.no_op), lambda mode: None):
        compiled.check_scaffolds(compile_graph(scaffold_model_fn(make)))

    assert 'ignored' not in caplog.text


def test_the_scaffold_of_training_may_serve_evaluation_too():
    def make(mode):
        if mode == ModeKeys.TRAIN:
            made.append(v1.train.Scaffold(saver=v1.train.Saver()))
        return made[0]

    made = []
    assert not compile_graph(scaffold_model_fn(make)).apart
