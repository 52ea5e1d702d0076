"""Random draws that depend on the seed, the op's name and the tick only."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1
from tensorflow.python.ops import random_ops

from framework import testing
from framework.graph import building, compiled
from framework.graph.random_ops import audit, exchange, keys
from framework.run_config import EvalSet
from framework.spec import EstimatorSpec, ModeKeys

FEATURES, LABELS = testing.blobs(12)
INPUT_FN = testing.array_input_fn(FEATURES, LABELS, batch_size=4)


@pytest.fixture(params=['v1', 'v2'])
def control_flow(request):
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2() if request.param == 'v1' else v1.enable_control_flow_v2()
    yield request.param
    v1.enable_control_flow_v2() if before else v1.disable_control_flow_v2()


def drawn(build, ticks, seed=5, task=0):
    """Returns what `build` draws at each tick, None standing for a run that feeds none, in a graph and a session."""
    with building.new_graph(seed) as graph, exchange.keyed(graph, seed, task=task) as keyed:
        fetches = build()
        init = [v1.global_variables_initializer(), v1.local_variables_initializer()]
    with v1.Session(graph=graph) as session:
        session.run(init)
        return [session.run(fetches, {} if tick is None else {keyed.tick: tick}) for tick in ticks]


def one(build, tick=3, **kwargs):
    return drawn(build, [tick], **kwargs)[0]


def assert_equal(left, right):
    tf.nest.map_structure(np.testing.assert_array_equal, left, right)


# Places


def plain_draws():
    x = tf.linspace(1.0, 2.0, 16)
    return {
        'dropout': tf.nn.dropout(x, rate=0.5),
        'dropout again': tf.nn.dropout(x, rate=0.5),
        'v1 layer': v1.layers.dropout(x, 0.5, training=True),
        'keras layer': tf_keras.layers.Dropout(0.5)(x, training=True),
        'noise': tf_keras.layers.GaussianNoise(1.0)(x, training=True),
        'normal': tf.random.normal([4]),
        'truncated': tf.random.truncated_normal([4]),
        'uniform': tf.random.uniform([4]),
        'int': tf.random.uniform([4], maxval=1000, dtype=tf.int32),
        'int64': tf.random.uniform([4], maxval=1000, dtype=tf.int64),
        'shuffle': tf.random.shuffle(tf.range(32)),
        'categorical': tf.random.categorical(tf.zeros([2, 50]), 4),
        'gamma': tf.random.gamma([3], [0.5, 2.0]),
        'poisson': tf.random.poisson([8], [9.5, 20.0]),
        'crop': tf.image.random_crop(tf.range(900), [2]),
        'box': tf.image.sample_distorted_bounding_box([99, 99, 3], tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), 1, 0.1)[0],
    }


def call_twice():
    @tf.function
    def draw(x):
        return x + tf.random.uniform([3])

    @tf.function
    def outer(x):
        return draw(x), draw(x)

    return {'a': draw(tf.zeros([3])), 'b': draw(tf.zeros([3])), 'c': outer(tf.zeros([3])), 'd': outer(tf.zeros([3]))}


def loop_draws():
    def count(body, start):
        return tf.while_loop(lambda i, _: i < 4, lambda i, x: (i + 1, body(x)), (0, start))[1]

    def shift(x):
        return tf.concat([x[1:], tf.random.uniform([1])], 0)

    @tf.function
    def draw():
        return tf.random.uniform([])

    cell = v1.nn.rnn_cell.DropoutWrapper(v1.nn.rnn_cell.BasicRNNCell(3), output_keep_prob=0.5, state_keep_prob=0.5)
    ones = tf.ones([8])
    return {
        'while': count(shift, tf.zeros([4])),
        'nested': count(lambda x: count(shift, x), tf.zeros([16])),
        'cond in while': count(lambda x: tf.cond(x[0] > -1.0, lambda: shift(x), lambda: x), tf.zeros([4])),
        'map_fn': tf.map_fn(lambda x: x * tf.random.uniform([]), ones),
        'function in map_fn': tf.map_fn(lambda x: x * draw() + draw(), ones),
        'cond': tf.cond(ones[0] > 0, lambda: tf.random.uniform([2]), lambda: tf.random.uniform([2])),
        'case': tf.switch_case(tf.constant(1), [lambda: tf.random.uniform([2])] * 2),
        'rnn': v1.nn.dynamic_rnn(cell, tf.ones([2, 5, 3]), dtype=tf.float32)[0],
    }


@pytest.mark.parametrize('build', [plain_draws, call_twice, loop_draws])
def test_a_draw_depends_on_the_tick_and_on_nothing_before_it(build, control_flow):
    first = drawn(build, [0, 1, 2, 3, keys.evaluation_tick(3, 1)])
    again = drawn(build, [3, keys.evaluation_tick(3, 0), keys.evaluation_tick(3, 1), 3, 2])

    assert_equal(first[3], again[0])
    assert_equal(first[3], again[3])
    assert_equal(first[2], again[4])
    assert_equal(first[4], again[2])
    for other in (first[2], again[1]):
        same = [np.array_equal(a, b) for a, b in zip(tf.nest.flatten(first[3]), tf.nest.flatten(other), strict=True)]
        assert not any(same)


def test_every_iteration_and_every_call_draws_its_own(control_flow):
    loops, calls = one(loop_draws), one(call_twice)

    for name in ('while', 'nested', 'cond in while', 'map_fn', 'function in map_fn'):
        assert len(set(loops[name].tolist())) == len(loops[name]), name
    assert len({tuple(values) for values in tf.nest.flatten(calls)}) == 6


def test_ops_of_one_seed_differ_by_their_names_and_seeds_and_tasks_differ():
    def build():
        return [tf.random.uniform([4], seed=1), tf.random.uniform([4], seed=1)]

    results = [one(build), one(build, seed=6), one(build, task=1)]
    assert len({tuple(values) for result in results for values in result}) == 6


def test_an_unfed_run_draws_the_same_each_time_and_the_local_variable_moves_it():
    with building.new_graph(5) as graph, exchange.keyed(graph, 5) as keyed:
        draw = tf.random.uniform([4])
        (unfed,) = keyed.variables
        move = v1.assign(unfed, 7)
    with v1.Session(graph=graph) as session:
        before_initialisation = session.run(draw)
        session.run(unfed.initializer)
        assert_equal(session.run(draw), before_initialisation)
        assert_equal(session.run(draw), session.run(draw, {keyed.tick: 0}))
        session.run(move)
        assert_equal(session.run(draw), session.run(draw, {keyed.tick: 7}))
        assert not np.array_equal(session.run(draw), before_initialisation)


def test_the_tick_is_the_only_variable_and_no_model_variable():
    with building.new_graph(5) as graph, exchange.keyed(graph, 5) as keyed:
        loop_draws()
        assert v1.local_variables() == list(keyed.variables)
        assert not [v for v in v1.global_variables() if 'random' in v.op.name]


# Distributions


N = 40_000
DISTRIBUTIONS = {
    'uniform': (lambda: tf.random.uniform([N], 2.0, 4.0), lambda r: r.uniform(2, 4, N)),
    'half': (lambda: tf.cast(tf.random.uniform([N], dtype=tf.half), tf.float32), lambda r: r.uniform(0, 1, N)),
    'bfloat16': (lambda: tf.cast(tf.random.normal([N], dtype=tf.bfloat16), tf.float32), lambda r: r.normal(size=N)),
    'double': (lambda: tf.random.normal([N], 1.0, 2.0, tf.float64), lambda r: r.normal(1, 2, N)),
    'int': (lambda: tf.random.uniform([N], -5, 50, tf.int32), lambda r: r.integers(-5, 50, N)),
    'int64': (lambda: tf.random.uniform([N], 0, 9, tf.int64), lambda r: r.integers(0, 9, N)),
    'gamma': (lambda: tf.random.gamma([N], 2.5, 2.0), lambda r: r.gamma(2.5, 0.5, N)),
    'small gamma': (lambda: tf.random.gamma([N], 0.3, dtype=tf.float64), lambda r: r.gamma(0.3, 1, N)),
    'poisson': (lambda: tf.random.poisson([N], 3.5), lambda r: r.poisson(3.5, N)),
    'categorical': (
        lambda: tf.random.categorical(tf.math.log([[0.2, 0.3, 0.5]]), N)[0],
        lambda r: r.choice(3, N, p=[0.2, 0.3, 0.5]),
    ),
    'shuffle': (lambda: tf.random.shuffle(tf.range(N))[: N // 2], lambda r: r.integers(0, N, N)),
}


@pytest.mark.parametrize('name', DISTRIBUTIONS)
def test_a_twin_has_the_distribution_of_numpy(name):
    build, reference = DISTRIBUTIONS[name]
    values, expected = np.sort(one(build)), np.sort(reference(np.random.default_rng(1)))

    points = np.unique(expected)[:: max(1, len(np.unique(expected)) // 500)]
    below = [np.searchsorted(data, points, side='right') / len(data) for data in (values, expected)]
    assert np.abs(below[0] - below[1]).max() < 0.025  # Kolmogorov and Smirnov's statistic; far below 1% by chance
    assert abs(values.mean() - expected.mean()) < 0.05 * expected.std()


def test_truncated_normals_keep_their_bounds_per_row():
    values, rows = one(
        lambda: (
            tf.random.truncated_normal([N]),
            random_ops.parameterized_truncated_normal([2, N], [0.0, 10.0], [1.0, 2.0], [-1.0, 9.0], [1.0, 30.0]),
        )
    )
    assert np.abs(values).max() <= 2
    assert abs(values.std() - 0.8796) < 0.01  # of a normal cut at two standard deviations
    assert -1 <= rows[0].min() <= rows[0].max() <= 1
    assert 9 <= rows[1].min() <= rows[1].max() <= 30
    assert abs(rows[0].mean()) < 0.02
    assert abs(rows[0].std() - 0.5396) < 0.01  # of a normal cut at one standard deviation


def test_a_shuffle_is_a_permutation_and_draws_over_ticks_are_independent():
    rows = np.array(drawn(lambda: tf.random.uniform([100]), range(200)))

    assert sorted(one(lambda: tf.random.shuffle(tf.range(100))).tolist()) == list(range(100))
    correlations = np.corrcoef(rows, rowvar=False)[np.triu_indices(100, 1)]
    assert np.abs(correlations.mean()) < 0.01
    assert abs(rows.mean() - 0.5) < 0.01


# Gradients


def test_gradients_take_the_mask_of_the_forward_pass(control_flow):
    def build():
        x = tf.linspace(1.0, 2.0, 64)
        once = tf.nn.dropout(x, rate=0.5)
        called = tf.function(lambda a: tf.nn.dropout(a, rate=0.5))
        looped = tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, tf.nn.dropout(a, rate=0.3)), (0, x))[1]
        results = {'once': once, 'called': called(x), 'called again': called(x), 'looped': looped}
        return {name: (y / x, tf.gradients(y, x)[0]) for name, y in results.items()}

    for name, (mask, gradient) in one(build).items():
        np.testing.assert_allclose(mask, gradient, rtol=1e-5, err_msg=name)
        assert 0 < (mask == 0).mean() < 1


def test_the_gradient_of_gamma_is_that_of_its_quantile():
    def build():
        alpha = tf.fill([N], 2.5)
        sample = tf.random.gamma([], alpha)
        return sample, tf.gradients(sample, alpha)[0]

    sample, gradient = one(build)
    # The mean of a gamma variable is alpha, its second moment alpha + alpha^2.
    assert abs(gradient.mean() - 1) < 0.02
    assert abs((2 * sample * gradient).mean() - (1 + 2 * 2.5)) < 0.15


# Initial values


def weights(order):
    makers = {
        'a': lambda: v1.get_variable('a', [3], initializer=v1.random_normal_initializer()),
        'b': lambda: v1.layers.Dense(2, name='b').build([None, 3]),
        'c': lambda: tf_keras.layers.Dense(2, name='c')(tf.ones([1, 3])),
        'd': lambda: tf.Variable(lambda: tf.random.normal([3]), name='d'),
        'e': lambda: tf.Variable(tf.random.normal([3], name='of_e'), name='e'),
    }
    for name in order:
        makers[name]()
    return {variable.op.name: variable.value() for variable in v1.global_variables()}


def test_initial_values_depend_on_names_only():
    there, back = one(lambda: weights('abcde')), one(lambda: weights('edcba'))
    unfed = one(lambda: weights('abcde'), tick=None)

    assert set(there) == {'a', 'b/kernel', 'b/bias', 'c/kernel', 'c/bias', 'd', 'e'}
    assert_equal(there, back)
    assert_equal(there, unfed)
    assert not np.array_equal(there['b/kernel'], there['c/kernel'])


# The function of a Dataset


def uniform(*shape):
    return tf.random.uniform(shape)


def branching(i):
    if i > 3:  # AutoGraph's business
        return i, uniform()
    return i, -uniform()


def flipped(i):
    return i, tf.image.random_flip_left_right(tf.reshape(tf.range(24.0) + tf.cast(i, tf.float32), [2, 12, 1]))


def looping(i):
    return i, tf.map_fn(lambda x: x + uniform(), tf.zeros([3]))


def inner(i):
    return tf.data.Dataset.range(4).map(lambda j: (4 * i + j, uniform()))


DATASETS = {
    'map': lambda d: d.map(lambda i: (i, uniform())),
    'shuffled, parallel': lambda d: d.shuffle(24).map(lambda i: (i, uniform()), num_parallel_calls=4),
    'repeated before': lambda d: d.shuffle(24).repeat(2).map(lambda i: (i, uniform())).batch(3).prefetch(2),
    'tuple': lambda d: tf.data.Dataset.zip((d, d)).map(lambda i, j: (i + j, uniform())),
    'dict': lambda d: d.map(lambda i: {'i': i}).map(lambda e: {**e, 'u': uniform()}),
    'sparse': lambda d: d.map(lambda i: tf.sparse.from_dense([i, i])).map(lambda s: (s, uniform())),
    'branches': lambda d: d.map(branching),
    'loop': lambda d: d.map(looping),
    'image': lambda d: d.map(flipped),
    'flat_map': lambda d: d.flat_map(inner),
    'interleave': lambda d: d.interleave(inner, cycle_length=3),
    'parallel interleave': lambda d: d.shuffle(24).interleave(inner, cycle_length=3, num_parallel_calls=2),
    'filter': lambda d: d.filter(lambda i: uniform() < 0.7),
    'take_while': lambda d: d.take_while(lambda i: uniform() < 0.97),
    'scan': lambda d: d.scan(0.0, lambda s, i: (s + uniform(), (i, s))),
}


class Pipeline:
    """A keyed pipeline of two epochs with its iterator and a saver of it."""

    def __init__(self, build, of=tf.data.Dataset):
        with building.new_graph(5) as self.graph, exchange.keyed(self.graph, 5):
            data = build(of.range(12)).repeat(2)
            self.spec = data.element_spec
            self.iterator = v1.data.make_initializable_iterator(data)
            self.batch = self.iterator.get_next()
            saveable = tf.data.experimental.make_saveable_from_iterator(self.iterator, 'fail')
            self.saver = v1.train.Saver([saveable])
        self.findings = audit.audit(self.graph, [self.iterator.initializer])

    def read(self, path=None, save_at=None, save_to=None):
        rows = []
        with v1.Session(graph=self.graph) as session:
            session.run(self.iterator.initializer)
            if path:
                self.saver.restore(session, path)
            while True:
                if len(rows) == save_at:
                    self.saver.save(session, save_to)
                try:
                    rows.append(tf.nest.flatten(session.run(self.batch), expand_composites=True))
                except tf.errors.OutOfRangeError:
                    return [[value.tolist() for value in row] for row in rows]


@pytest.mark.parametrize(
    ('name', 'of'),
    [
        *((name, tf.data.Dataset) for name in DATASETS),
        *((name, v1.data.Dataset) for name in ('shuffled, parallel', 'tuple', 'interleave', 'filter')),
    ],
)
def test_the_function_of_a_dataset_draws_anew_each_epoch_and_the_same_after_a_restore(name, of, tmp_path):
    options = tf.data.Options()
    options.autotune.enabled = False  # maps that are made parallel read ahead, which the audit finds, and a save loses

    def build(data):
        return DATASETS[name](data).with_options(options)

    whole = Pipeline(build, of).read(save_at=4, save_to=str(tmp_path / 'iterator'))
    resumed = Pipeline(build, of).read(str(tmp_path / 'iterator'))

    assert resumed == whole[4:]
    assert whole[: len(whole) // 2] != whole[len(whole) // 2 :]


def test_a_shuffled_epoch_draws_other_numbers_than_the_one_before():
    # Not the same numbers at other elements: then as many numbers as elements would serve the whole training.
    rows = Pipeline(lambda data: data.shuffle(24).map(lambda x: tf.random.uniform([])).repeat(2)).read()
    first, second = (
        {value for row in half for value in row} for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :])
    )
    assert len(first) == len(second) == len(rows) // 2
    assert len(first & second) <= 2  # two orders may begin alike


@pytest.mark.parametrize('save_at', [9, 11, 12, 14])
@pytest.mark.parametrize('name', ['shuffled, parallel', 'parallel interleave'])
def test_an_iterator_that_has_read_the_end_of_an_epoch_is_restored_exactly(name, save_at, tmp_path):
    def build(data):
        return DATASETS[name](data).prefetch(40)

    pipeline = Pipeline(build)
    whole = pipeline.read(save_at=save_at, save_to=str(tmp_path / 'iterator'))

    assert pipeline.read(str(tmp_path / 'iterator')) == whole[save_at:]
    assert not pipeline.findings


@pytest.mark.parametrize(
    'build',
    [
        lambda d: d.shuffle(24).map(lambda i: (i, uniform())).batch(2).unbatch().prefetch(40),
        lambda d: d.map(lambda i: (i, uniform())),
    ],
    ids=['shuffle', 'seeds'],
)
def test_repeated_data_whose_order_a_save_can_lose_is_found(build):
    (finding,) = Pipeline(build).findings
    assert 'loses the order of the next' in finding.reason
    assert not finding.allowed


@pytest.mark.parametrize('name', ['tuple', 'dict', 'sparse'])
def test_the_structure_of_elements_is_kept(name):
    keyed = Pipeline(DATASETS[name])
    with tf.Graph().as_default():
        assert keyed.spec == DATASETS[name](tf.data.Dataset.range(12)).element_spec


def test_all_elements_and_all_inner_elements_draw_their_own():
    for name in ('map', 'interleave', 'flat_map'):
        rows = Pipeline(DATASETS[name]).read()
        assert len({row[1] for row in rows}) == len(rows), name
    looped = [value for row in Pipeline(DATASETS['loop']).read() for value in row[1]]
    assert len(set(looped)) == len(looped)


def test_a_function_without_a_draw_is_traced_once():
    calls = []
    Pipeline(lambda d: d.map(lambda i: calls.append(i) or i))
    assert len(calls) == 1


# The audit


def found(build):
    with building.new_graph(5) as graph, exchange.keyed(graph, 5):
        roots = build()
    return audit.audit(graph, tf.nest.flatten(roots))


def dataset_of(build):
    return lambda: v1.data.make_initializable_iterator(build(tf.data.Dataset.range(4))).initializer


def raw(_=None):
    return tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32)


def legacy(i):
    return tf.numpy_function(lambda x: x, [i], tf.int64)


def table(data):
    contents = tf.lookup.KeyValueTensorInitializer([1], [2], tf.int64, tf.int64)
    return data.map(tf.lookup.StaticHashTable(contents, 0).lookup)


@pytest.mark.parametrize(
    ('build', 'op_type'),
    [
        (raw, 'RandomUniform'),
        (tf.function(raw), 'RandomUniform'),
        (lambda: tf.vectorized_map(lambda x: x * uniform(), tf.ones([3])), 'RandomUniform'),
        (lambda: tf.raw_ops.AccumulateNV2(inputs=[tf.zeros([2])] * 3, shape=[2]), 'AccumulateNV2'),
        (lambda: tf.math.bincount(tf.constant([1, 1, 0]), tf.constant([0.1, 0.2, 0.3])), 'DenseBincount'),
        (lambda: legacy(tf.constant(1, tf.int64)), 'PyFunc'),
        (
            lambda: tf.random.uniform_candidate_sampler(tf.constant([[1]], tf.int64), 1, 1, True, 9)[0],
            'UniformCandidateSampler',
        ),
        (lambda: tf.nn.fractional_max_pool(tf.ones([1, 9, 9, 1]), 1.5, seed=1)[0], 'FractionalMaxPool'),
        (lambda: tf.queue.RandomShuffleQueue(9, 1, tf.float32).dequeue(), 'RandomShuffleQueueV2'),
        (dataset_of(lambda d: d.map(raw)), 'RandomUniform'),
        (dataset_of(lambda d: d.map(legacy)), 'PyFunc'),
        (dataset_of(lambda d: d.interleave(lambda i: d.map(raw))), 'RandomUniform'),
        (dataset_of(lambda d: d.cache('/nowhere')), 'CacheDataset'),
        (dataset_of(lambda d: d.map(lambda i: i, num_parallel_calls=2, deterministic=False)), 'ParallelMapDatasetV2'),
        (
            dataset_of(lambda _: tf.data.Dataset.from_generator(list, output_signature=tf.TensorSpec([]))),
            'GeneratorDataset',
        ),
    ],
)
def test_the_audit_finds_what_is_not_keyed_and_where_it_was_made(build, op_type):
    findings = [finding for finding in found(build) if finding.op_type == op_type]

    assert findings
    assert not findings[0].allowed
    assert 'test_random_ops.py:' in findings[0].made_at


def test_the_audit_allows_tables_and_inner_repetitions_by_name():
    (of_table,) = found(dataset_of(table))
    (of_repeat,) = found(dataset_of(lambda d: d.flat_map(lambda i: inner(i).repeat(2))))

    assert (of_table.op_type, of_table.allowed) == ('LookupTableFindV2', True)
    assert (of_repeat.op_type, of_repeat.allowed) == ('RepeatDataset', True)


def test_the_audit_leaves_out_keyed_draws_and_what_is_not_run(control_flow):
    def build():
        raw()
        return [plain_draws(), call_twice(), loop_draws(), v1.get_variable('v', initializer=raw).read_value()]

    assert found(build) == []


# Whose turn it is


def test_other_threads_and_other_graphs_are_left_alone():
    types = []

    def build_another():
        with tf.Graph().as_default() as graph:
            tf.random.uniform([2])
            types.append({op.type for op in graph.get_operations() if 'Random' in op.type})

    with building.new_graph(5) as graph, exchange.keyed(graph, 5):
        thread = threading.Thread(target=build_another)
        thread.start()
        thread.join()
        build_another()
    build_another()
    assert types == [{'RandomUniform'}] * 3


# The one graph


def dropout_model_fn(features, labels, mode):
    hidden = v1.layers.dense(features, 8, activation=tf.nn.relu, name='hidden')
    hidden = v1.layers.dropout(hidden, 0.5, training=mode != ModeKeys.PREDICT, name='drop')
    logits = tf_keras.layers.Dense(3)(hidden)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = v1.train.AdamOptimizer().minimize(loss, global_step=v1.train.get_global_step())
    metrics = {'drawn': v1.metrics.mean(hidden)}
    return EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=logits, eval_metric_ops=metrics)


def compile_graph(train=INPUT_FN, sets=('eval',), keyed=True, model_fn=dropout_model_fn):
    model = compiled.Model(model_fn, None, None)
    return compiled.compile_graph(
        model, train, [EvalSet(input_fn=INPUT_FN, name=name) for name in sets], seed=1, keyed=keyed
    )


class Run:
    """A session of a compiled graph."""

    def __init__(self, built):
        self.built = built
        self.session = v1.Session(graph=built.graph)
        with built.graph.as_default():
            init = [v1.global_variables_initializer(), v1.local_variables_initializer()]
            self.session.run(init)
            self.session.run(built.init)
        if built.train is not None:
            self.session.run(list(built.train.input.initializers.values()))

    def train(self, runs):
        spec = self.built.train.spec
        return [self.session.run([spec.train_op, spec.loss], {self.built.draws.tick: run})[1] for run in runs]

    def evaluate(self, stream, step):
        tower = self.built.tower(stream)
        self.session.run([tower.reset, tower.input.initializers[stream]])
        for batch in range(3):
            self.session.run(tower.update, {self.built.draws.tick: keys.evaluation_tick(step, batch)})
        return self.session.run(dict(tower.values))

    def weights(self):
        return self.session.run({v.op.name: v for v in self.built.graph.get_collection('variables')})


def test_evaluation_leaves_training_untouched_and_draws_whatever_came_before():
    alone, both = Run(compile_graph(sets=())), Run(compile_graph())
    losses, first = alone.train(range(3)), both.train(range(2))
    passes = [both.evaluate('eval', 2) for _ in range(2)]

    assert losses == [*first, *both.train([2])]
    assert_equal(alone.weights(), both.weights())
    assert_equal(passes[0], passes[1])


def test_evaluation_in_the_one_graph_draws_as_in_a_graph_of_its_own():
    one_graph = Run(compile_graph(sets=('a', 'b')))
    own_graph = Run(compile_graph(train=None, sets=('b',)))

    assert_equal(one_graph.weights(), own_graph.weights())
    assert_equal(one_graph.evaluate('b', 7), own_graph.evaluate('b', 7))
    assert_equal(one_graph.evaluate('a', 7), own_graph.evaluate('b', 7))
    assert not np.array_equal(own_graph.evaluate('b', 8)['drawn'], own_graph.evaluate('b', 7)['drawn'])


def test_variables_are_those_of_a_graph_that_is_not_keyed():
    names = [
        [(v.name, v.shape.as_list()) for v in compile_graph(keyed=keyed).graph.get_collection('variables')]
        for keyed in (True, False)
    ]
    assert names[0] == names[1]


def test_a_compiled_graph_says_its_tick_its_state_and_what_was_found():
    built = compile_graph()
    assert built.draws.tick.op.type == 'PlaceholderWithDefault'
    assert (built.draws.state, built.draws.findings) == ((), ())
    assert compile_graph(keyed=False).draws.tick is None
    assert compile_graph(model_fn=testing.linear_model_fn).draws.tick is None


def test_findings_are_those_of_training():
    def model_fn(features, labels, mode):
        return dropout_model_fn(features + (0.0 if mode == ModeKeys.TRAIN else raw()[0]), labels, mode)

    assert compile_graph(model_fn=model_fn).draws.findings == ()

    def training(features, labels, mode):
        return dropout_model_fn(features + raw()[0], labels, mode)

    (finding,) = compile_graph(model_fn=training).draws.findings
    assert finding.op_type == 'RandomUniform'
