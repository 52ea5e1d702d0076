"""Many runs in one: the bits of single runs, and what is refused."""

import math
import random

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import testing
from framework.graph import compiled, fusible
from framework.graph.random_ops import keys
from framework.run_config import EvalSet, default_session_config
from framework.session import graphs
from framework.spec import EstimatorSpec, ModeKeys

KEYS = v1.GraphKeys
TRAIN, VALID = testing.blobs(315), testing.blobs(50, seed=1)


def model_fn(features, labels, mode):
    """Batch normalization, dropout, a loop that draws, slots, and a summary."""
    training = mode == ModeKeys.TRAIN
    hidden = v1.layers.dense(features, 8, tf.nn.relu)
    hidden = v1.layers.batch_normalization(hidden, training=training, momentum=0.9)
    hidden = v1.layers.dropout(hidden, 0.5, training=training)
    hidden += tf.map_fn(lambda row: 0.1 * tf.random.normal(tf.shape(row)), hidden)
    logits = v1.layers.dense(hidden, 2)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(each)
    metrics = {'accuracy': v1.metrics.accuracy(labels, tf.argmax(logits, 1)), 'each': v1.metrics.mean(each)}
    if not training:
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    with tf.control_dependencies(v1.get_collection(KEYS.UPDATE_OPS)):
        train_op = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def input_fn(mode):
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN if mode == ModeKeys.TRAIN else VALID)
    return (dataset.shuffle(100).repeat() if mode == ModeKeys.TRAIN else dataset).batch(16)


def built(model_fn=model_fn, input_fn=input_fn, **settings):
    sets = [EvalSet(name='valid', input_fn=input_fn)]
    settings = {'keyed': True, 'sizes_of': graphs.sizes_of, 'accumulate': True, **settings}
    return compiled.compile_graph(compiled.Model(model_fn, None, None), input_fn, sets, seed=1, fuse=True, **settings)


@pytest.fixture(scope='module')
def graph():
    return built()


def light_model_fn(features, labels, mode):
    return testing.linear_model_fn(tf.nn.dropout(features, rate=0.5), labels, mode)


class Runs:
    """Makes train runs and passes, each way, in one session."""

    def __init__(self, graph):
        self.graph, self.train, (self.tower,) = graph, graph.train, graph.towers
        self.session = v1.Session(graph=graph.graph, config=default_session_config())
        with graph.graph.as_default():
            self.session.run(v1.global_variables_initializer())
            self.session.run([v1.local_variables_initializer(), graph.init])
        self.session.run(list(self.train.input.initializers.values()))
        self.made = 0

    def _feeds(self, tick):
        return {} if self.graph.draws.tick is None else {self.graph.draws.tick: tick}

    def step(self, steps):
        values = self.train.spec, self.train.step_after, self.train.input.examples
        fetches = [values[0].train_op, self.train.updates, values[0].loss, *values[1:]]
        losses, examples = [], 0
        for _ in range(steps):
            _, _, loss, _, count = self.session.run(fetches, self._feeds(self.made))
            losses.append(loss)
            examples += count
            self.made += 1
        return np.array(losses), examples

    def fuse(self, steps):
        many = self.train.fused
        fetches = [many.runs, many.losses, many.examples, many.step, many.last]
        runs, losses, examples, step, last = self.session.run(fetches, {many.limit: steps, many.start: self.made})
        self.made += runs
        assert step == self.made and losses.shape == (runs,)
        self.last = last
        return losses, examples

    def _start(self):
        self.session.run([self.tower.reset, self.tower.input.initializers['valid']])

    def step_pass(self):
        self._start()
        batches = self.tower.input.sizes['valid']
        fetches = [self.tower.update, self.tower.input.examples]
        counts = [self.session.run(fetches, self._feeds(keys.evaluation_tick(self.made, i)))[1] for i in range(batches)]
        return self.session.run(dict(self.tower.values)), sum(counts)

    def fuse_pass(self, *limits):
        self._start()
        many, batches, examples = self.tower.fused, 0, 0
        for limit in limits:
            feeds = {many.limit: limit, many.start: keys.evaluation_tick(self.made, batches)}
            read, count, values = self.session.run([many.batches, many.examples, dict(many.values)], feeds)
            batches, examples = batches + read, examples + count
        return values, examples

    def everything(self):
        with self.graph.graph.as_default():
            variables = [*v1.global_variables(), *v1.local_variables()]
        values = self.session.run({v.name: v for v in variables})
        return {name: value.tobytes() for name, value in values.items()}


def assert_same(one, other):
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fused_runs_have_the_bits_of_single_runs_with_random_switches_between_them(graph):
    assert not graph.train.unfused and not graph.towers[0].unfused
    single, mixed, generator = Runs(graph), Runs(graph), random.Random(1)
    ways = [mixed.fuse, mixed.step, mixed.fuse, mixed.step, mixed.fuse]  # five switches, to and from passes
    for i, way in enumerate(ways):
        steps = generator.randrange(2, 30)
        assert_same(way(steps), single.step(steps))
        expected = single.step_pass()
        assert expected[1] == 50
        assert_same(mixed.fuse_pass(4) if i % 2 else mixed.fuse_pass(1, 2, 1), expected)
        assert mixed.everything() == single.everything()


def test_the_count_of_runs_is_asked_for_alone_and_all_of_each_run_is_made(graph):
    # A loop leaves out what nothing that is asked for depends on, and is fast, and wrong.
    single, other = Runs(graph), Runs(graph)
    single.step(7)
    many = graph.train.fused
    assert other.session.run(many.runs, {many.limit: 7, many.start: 0}) == 7
    assert other.everything() == single.everything()


def random_loss(generator, leaves, depth):
    """A scalar of scalars, by ops that optimisations put into another order or replace."""
    if depth == 0:
        return generator.choice(leaves)
    a, b = (random_loss(generator, leaves, generator.randrange(depth)) for _ in range(2))
    factor = generator.choice([0.1, 0.3, 3.0, 7.0])
    ways = [
        lambda: a + b,
        lambda: a - b,
        lambda: a * factor,
        lambda: a / factor,
        lambda: factor * a + factor * b,
        lambda: a * b + a * a,
        lambda: tf.add_n([a, b, a]),
        lambda: tf.sqrt(tf.abs(a)) / tf.sqrt(1.0 + tf.abs(b)),
        lambda: tf.square(a) - b,
        lambda: (a + factor) + 0.3,
        lambda: tf.reduce_mean(tf.stack([a, b, a / factor])),
        lambda: tf.math.divide_no_nan(tf.reduce_sum([a, b]), factor),
        lambda: tf.pow(a, 3.0) - factor * b,
        lambda: tf.squeeze(tf.reshape(a * factor, [1, 1])),
        lambda: tf.where(a > b, a / factor, b * factor * 0.3),
        lambda: tf.cast(tf.cast(a, tf.float64) / factor, tf.float32),
        lambda: tf.identity(a * factor + b),
    ]
    return generator.choice(ways)()


# Of the first 60, those of 33, 38 and 48 have other bits where no copy of a loss is marked.
@pytest.mark.parametrize('seed', [1, 2, 3, 4, 5, 33, 38, 48])
def test_the_losses_of_a_fused_run_round_as_those_that_single_runs_fetch(seed):
    def rounding(features, labels, mode):
        spec = light_model_fn(features, labels, mode)
        leaves = [spec.loss, 1.0 + tf.norm(features), tf.reduce_mean(tf.square(features)), tf.reduce_max(features)]
        return spec._replace(loss=random_loss(random.Random(seed), leaves, 4))

    graph = built(rounding)
    single, other = Runs(graph), Runs(graph)
    assert_same(other.fuse(8), single.step(8))
    assert other.everything() == single.everything()


def test_no_run_of_the_session_has_to_optimise_what_is_in_a_fused_one():
    # The mark keeps all that it depends on in every run until that is optimised: for a model of 500 variables ten
    # seconds more for each kind of run.
    definition = built().graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert not [node.name for node in nodes if '_grappler_do_not_remove' in node.attr]


def test_data_that_announces_its_end_ends_a_fused_run():
    graph = built(light_model_fn, lambda mode: input_fn(ModeKeys.EVAL).filter(lambda *_: True))
    single, other = Runs(graph), Runs(graph)
    expected = single.step(4)
    assert_same(other.fuse(3), [expected[0][:3], 48])
    assert not other.last
    losses, examples = other.fuse(100)
    assert_same([losses, examples], [expected[0][3:], 2])
    assert other.last
    assert other.everything() == single.everything()


def test_a_loss_that_is_not_finite_ends_a_fused_run():
    def broken(features, labels, mode):
        spec = light_model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            return spec
        step = v1.train.get_global_step()
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(loss=tf.where(step.read_value() < 6, spec.loss, math.nan))

    graph = built(broken)
    single, other = Runs(graph), Runs(graph)
    expected = single.step(6)
    assert_same(other.fuse(50), expected)
    assert np.isnan(expected[0]).tolist() == [False] * 5 + [True]
    assert other.everything() == single.everything()


def test_a_run_that_fails_leaves_the_steps_before_it():
    def broken(features, labels, mode):
        step = tf.identity(v1.train.get_global_step())
        with tf.control_dependencies([tf.debugging.assert_less(step, np.int64(6), message='the seventh')]):
            return light_model_fn(tf.identity(features), labels, mode)

    graph = built(broken)
    single, other = Runs(graph), Runs(graph)
    single.step(6)
    for runs in (lambda: single.step(1), lambda: other.fuse(50)):
        with pytest.raises(tf.errors.InvalidArgumentError, match='the seventh'):
            runs()
    assert other.everything() == single.everything()


def test_the_metrics_of_training_are_accumulated_in_a_fused_run(graph):
    single, other = Runs(graph), Runs(graph)
    single.step(9)
    other.fuse(9)
    values = dict(graph.train.metrics.values)
    assert_same(other.session.run(values), single.session.run(values))


# What can't be fused


def _with_train_op(make):
    def broken(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode == ModeKeys.EVAL else spec._replace(train_op=tf.group(spec.train_op, make()))

    return broken


def _placeholder():
    return v1.assign(v1.get_local_variable('fed', [], use_resource=True), v1.placeholder(tf.float32, []))


def _ref_variable():
    variable = v1.Variable(0.0, use_resource=False, trainable=False, collections=[KEYS.LOCAL_VARIABLES])
    return v1.assign_add(variable, 1.0)


def _raw_random_op():
    drawn = tf.raw_ops.RandomStandardNormal(shape=tf.constant([], tf.int32), dtype=tf.float32)
    return v1.assign(v1.get_local_variable('drawn', [], use_resource=True), drawn)


def _step_in_a_loop_of_version_1():
    step = v1.train.get_global_step()
    v1.disable_control_flow_v2()
    try:
        body = lambda i: (tf.group(step.assign_add(1)), i + 1)  # noqa: E731
        return tf.nest.flatten(tf.while_loop(lambda i: i < 3, lambda i: _after(body, i), [tf.constant(0)]))[0].op
    finally:
        v1.enable_control_flow_v2()


def _after(body, i):
    moved, following = body(i)
    with tf.control_dependencies([moved]):
        return tf.identity(following)


def _record_input():
    records = tf.raw_ops.RecordInput(file_pattern=__file__, batch_size=1)
    return tf.group(records)


def _queue_in_a_branch():
    queue = tf.queue.FIFOQueue(10, tf.float32, [])
    return tf.cond(v1.train.get_global_step() < 3, lambda: tf.group(queue.enqueue(1.0)).name, lambda: '').op


def _random_op_in_a_function():
    drawn = tf.function(lambda: tf.raw_ops.RandomStandardNormal(shape=tf.constant([], tf.int32), dtype=tf.float32))()
    return v1.assign(v1.get_local_variable('drawn', [], use_resource=True), drawn)


def _second_stream():
    element = v1.data.make_initializable_iterator(tf.data.Dataset.range(5).repeat()).get_next()
    return v1.assign(v1.get_local_variable('element', [], tf.int64, use_resource=True), element)


def _queue():
    return tf.queue.FIFOQueue(10, tf.float32, []).enqueue(1.0)


def _one_more_step():
    return v1.assign_add(v1.train.get_global_step(), 1)


def _perhaps_one_more_step():
    step = v1.train.get_global_step()
    return tf.cond(step > 3, lambda: tf.group(step.assign_add(1)).name, lambda: '')


@pytest.mark.parametrize(
    ('make', 'reason'),
    [
        (_placeholder, '`Placeholder` has to be fed'),
        (_ref_variable, 'is of a variable without a handle: make it with `use_resource=True`'),
        (_raw_random_op, 'a random op that is not keyed'),
        (_random_op_in_a_function, 'a random op that is not keyed'),
        (_second_stream, '`IteratorGetNext` reads an iterator other than that of the input function'),
        (_queue, 'fills a queue'),
        (_queue_in_a_branch, 'fills a queue'),
        (_record_input, '`RecordInput` has state that a copy would not share'),
        (_step_in_a_loop_of_version_1, 'may move `global_step` by something else than 1'),
        (_one_more_step, 'may move `global_step` by something else than 1'),
        (_perhaps_one_more_step, 'may move `global_step` by something else than 1'),
    ],
)
def test_what_can_not_be_fused_is_named(make, reason):
    graph = built(_with_train_op(make))
    assert graph.train.fused is None
    assert any(reason in told for told in graph.train.unfused), graph.train.unfused
    assert graph.towers[0].fused is not None


def test_a_step_that_the_loss_moves_is_named():
    def moved_by_the_loss(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            return spec
        with tf.control_dependencies([v1.assign_add(v1.train.get_global_step(), 4)]):
            return spec._replace(loss=tf.identity(spec.loss))

    graph = built(moved_by_the_loss)
    assert 'may move `global_step` by something else than 1' in ' '.join(graph.train.unfused)


def test_a_metric_whose_value_reads_the_batch_is_named():
    def of_the_batch(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec._replace(eval_metric_ops={'mean': (tf.reduce_mean(features), tf.no_op())})

    graph = built(of_the_batch, accumulate=False)
    assert graph.towers[0].unfused == ('the value of metric `mean` reads the batch, and after the last there is none',)


def test_data_whose_end_nobody_knows_is_not_fused():
    graph = built(testing.linear_model_fn, lambda mode: v1.data.make_one_shot_iterator(input_fn(mode)).get_next())
    assert graph.train.unfused == (fusible.NO_END,)


def test_random_ops_with_state_are_not_fused():
    def dropped(features, labels, mode):
        return testing.linear_model_fn(tf.nn.dropout(features, rate=0.5), labels, mode)

    graph = built(dropped, keyed=False)
    assert 'a random op that is not keyed' in ' '.join(graph.train.unfused)
    assert 'a random op that is not keyed' in ' '.join(graph.towers[0].unfused)


def test_a_table_with_inputs_is_the_same_one_in_a_fused_run():
    table_of = []

    def remembering(features, labels, mode):
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            return spec
        with tf.control_dependencies([spec.train_op]):
            seen = table.lookup(labels) + 1
        table_of.append(table.export())
        return spec._replace(train_op=table.insert(labels, seen))

    graph = built(remembering)
    single, other = Runs(graph), Runs(graph)
    single.step(5)
    other.fuse(5)
    assert_same(*(runs.session.run(table_of[0]) for runs in (single, other)))


def test_a_default_value_that_nobody_feeds_is_computed_in_every_run():
    def decayed(features, labels, mode):
        rate = v1.placeholder_with_default(tf.cast(v1.train.get_global_step(), tf.float32), [])
        if mode == ModeKeys.EVAL:
            return testing.linear_model_fn(features, labels, mode)
        total = v1.get_local_variable('total', [], use_resource=True, initializer=tf.zeros_initializer())
        with tf.control_dependencies([total.assign_add(rate)]):  # before the global step moves
            return testing.linear_model_fn(features, labels, mode)

    graph = built(decayed)
    other = Runs(graph)
    other.fuse(5)
    assert other.session.run('total/Read/ReadVariableOp:0') == 0 + 1 + 2 + 3 + 4
