"""What a run promises, through `Experiment` alone."""

import json
import os
import pathlib
import random
import signal
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, EvalSet, Experiment, ModeKeys, RunConfig, errors, testing
from framework.reporting import tensorboard

FEATURES, LABELS = testing.blobs(103)
VALID, TEST = testing.blobs(47, seed=1), testing.blobs(20, seed=2)


def make(directory: pathlib.Path, **changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        'model_fn': testing.linear_model_fn,
        'train_input_fn': testing.array_input_fn(FEATURES, LABELS, 10, shuffle=50),
        'eval_sets': {
            'valid': testing.array_input_fn(*VALID, 10),
            'test': testing.array_input_fn(*TEST, 10),
        },
        'train_steps': 20,
        'eval_every_steps': 10,
        'model_dir': str(directory),
        'seed': 1,
        'run_config': RunConfig(save_checkpoints_steps=10, log_step_count_steps=10),
    }
    return Experiment(**{**settings, **changes})


def lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_graph_is_built_once_however_many_passes_run(tmp_path):
    calls, sizes = [], []

    def model_fn(features, labels, mode):
        calls.append(mode)
        return testing.linear_model_fn(features, labels, mode)

    class GraphSize(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sizes.append(len(session.graph.get_operations()))

        def end(self, session):
            sizes.append(len(session.graph.get_operations()))

    make(tmp_path, model_fn=model_fn, eval_every_steps=2, train_hooks=[GraphSize()]).train_and_evaluate()
    passes = [row for row in lines(tmp_path / 'timeline.jsonl') if row['phase'] == 'evaluate']
    assert len(passes) == 20
    assert calls == [ModeKeys.TRAIN, ModeKeys.EVAL]  # both sets have one structure, so one tower
    assert sizes[0] == sizes[1]


def test_memory_stays_flat_over_passes(tmp_path):
    resident = []

    class Resident(v1.train.SessionRunHook):
        def end(self, session):
            pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
            resident.append(pages * 4096 / 2**20)

    valid = EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=[Resident()])
    make(tmp_path, eval_sets=[valid], train_steps=100, eval_every_steps=2).train_and_evaluate()
    assert len(resident) == 50
    assert resident[49] - resident[9] < 10


def everything_model_fn(features, labels, mode):
    """Dropout, batch norm, a lookup table, summaries, a tf_keras layer, and a random op in EVAL."""
    training = mode == ModeKeys.TRAIN
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(['a', 'b']), tf.constant([0, 1], tf.int64)), -1
    )
    word = tf.one_hot(table.lookup(features['word']), 2)
    hidden = v1.layers.dense(tf.concat([features['x'], word], axis=1), 8, tf.nn.relu)
    hidden = v1.layers.batch_normalization(hidden, training=training, momentum=0.9)
    hidden = v1.layers.dropout(hidden, 0.3, training=training)
    hidden = tf.keras.layers.Dense(6, activation='relu')(hidden)
    if not training:
        hidden += tf.random.normal(tf.shape(hidden), stddev=0.01)
    v1.summary.histogram('hidden', hidden)
    logits = v1.layers.dense(hidden, 2)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    v1.summary.scalar('cross_entropy', loss)
    metrics = {'accuracy': v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}
    if not training:
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        train_op = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def with_words(features: np.ndarray) -> dict[str, np.ndarray]:
    return {'x': features, 'word': np.where(features[:, 0] > 0, 'a', 'b')}


def test_evaluation_leaves_training_untouched_to_the_bit(tmp_path):
    settings = {
        'model_fn': everything_model_fn,
        'train_input_fn': testing.array_input_fn(with_words(FEATURES), LABELS, 10, shuffle=50),
        'eval_sets': {
            'valid': testing.array_input_fn(with_words(VALID[0]), VALID[1], 10),
            'test': testing.array_input_fn(with_words(TEST[0]), TEST[1], 10),
        },
        'train_steps': 60,
        'run_config': RunConfig(save_checkpoints_steps=60, save_summary_steps=10),
    }
    make(tmp_path / 'alone', **settings).train()
    result = make(tmp_path / 'evaluated', **settings).train_and_evaluate()
    passes = [row for row in lines(tmp_path / 'evaluated' / 'timeline.jsonl') if row['phase'] == 'evaluate']
    assert len(passes) == 12
    assert result.metrics['valid']['accuracy'] > 0.5
    alone = testing.checkpoint_values(str(tmp_path / 'alone' / 'model.ckpt-60'))
    evaluated = testing.checkpoint_values(str(tmp_path / 'evaluated' / 'model.ckpt-60'))
    assert list(alone) == list(evaluated)
    assert {name: value.tobytes() for name, value in alone.items()} == {
        name: value.tobytes() for name, value in evaluated.items()
    }


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    def final(name, seed):
        make(tmp_path / name, model_fn=everything_like, seed=seed, eval_sets=()).train()
        return testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-20'))['dense/kernel']

    def everything_like(features, labels, mode):
        logits = v1.layers.dense(v1.layers.dropout(features, 0.5, training=True), 2)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    first, state = final('first', 3), random.getstate()
    np.testing.assert_array_equal(first, final('again', 3))
    assert not np.array_equal(first, final('other', 4))
    assert random.getstate() == state  # the seed of a run is no business of the program around it


def test_every_pass_equals_numpy_over_all_examples_each_once(tmp_path):
    seen = []

    class Weights(v1.train.SessionRunHook):
        """Reads what a pass is about to use."""

        def after_create_session(self, session, coord):
            seen.append(session.run('weights/Read/ReadVariableOp:0'))

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            metrics = {'mean': v1.metrics.mean(features), 'examples': v1.metrics.mean(tf.ones_like(labels))}
            spec = spec._replace(eval_metric_ops={**spec.eval_metric_ops, **metrics})
        return spec

    features, labels = VALID  # 47 examples in batches of 10: the last one holds 7
    valid = EvalSet(name='valid', input_fn=testing.array_input_fn(features, labels, 10), hooks=[Weights()])
    make(tmp_path, model_fn=model_fn, eval_sets=[valid]).train_and_evaluate()
    rows = [row for row in lines(tmp_path / 'metrics.jsonl') if row['stream'] == 'valid']
    assert len(rows) == len(seen) == 2
    for row, weights in zip(rows, seen, strict=True):
        predicted = np.argmax(features @ weights, axis=1)
        assert row['metrics']['accuracy'] == pytest.approx(np.mean(predicted == labels), abs=1e-7)
        assert row['metrics']['mean'] == pytest.approx(features.mean(), abs=1e-6)
    passes = [row for row in lines(tmp_path / 'timeline.jsonl') if row['phase'] == 'evaluate']
    assert [(row['steps'], row['examples']) for row in passes] == [(5, 47), (5, 47)]


def test_a_run_tells_the_same_numbers_everywhere(tmp_path):
    result = make(tmp_path).train_and_evaluate()
    assert (result.status, result.global_step, result.exit_code) == ('done', 20, 0)
    written = json.loads((tmp_path / 'result.json').read_text())
    last = {row['stream']: row['metrics'] for row in lines(tmp_path / 'metrics.jsonl')}
    for stream in ('valid', 'test'):
        curves = tensorboard.read_scalars(str(tmp_path / f'eval_{stream}'))
        for metric in ('accuracy', 'loss'):
            value = float(result.metrics[stream][metric])
            assert value == written['metrics'][stream][metric] == last[stream][metric]
            assert curves[metric][-1] == (20, pytest.approx(value, rel=1e-6))


def test_tensorboard_overlays_the_loss_of_training_and_of_each_set(tmp_path):
    make(tmp_path, run_config=RunConfig(save_summary_steps=5, log_step_count_steps=10)).train_and_evaluate()
    train = tensorboard.read_scalars(str(tmp_path))
    assert [step for step, _ in train['loss']] == [1, 5, 10, 15, 20]
    assert [step for step, _ in train['global_step/sec']] == [10, 20]
    for stream in ('valid', 'test'):
        assert [step for step, _ in tensorboard.read_scalars(str(tmp_path / f'eval_{stream}'))['loss']] == [10, 20]


def test_a_run_directory_holds_what_the_design_says(tmp_path):
    make(tmp_path).train_and_evaluate()
    names = {path.name for path in tmp_path.iterdir() if 'tfevents' not in path.name}
    assert names >= {
        *('checkpoint', 'commits', 'config.gin', 'operative_config.gin', 'provenance.json', 'result.json'),
        *('metrics.jsonl', 'timeline.jsonl', 'eval_valid', 'eval_test', 'model.ckpt-20.index'),
    }
    assert json.loads((tmp_path / 'provenance.json').read_text())['seed'] == 1


def test_a_set_without_a_name_is_called_eval(tmp_path):
    result = make(tmp_path, eval_sets=testing.array_input_fn(*VALID, 10)).train_and_evaluate()
    assert set(result.metrics) == {'eval', 'train'}
    assert (tmp_path / 'eval').is_dir()


def test_each_set_has_its_own_period(tmp_path):
    sets = [
        EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), every_steps=6),
        EvalSet(name='test', input_fn=testing.array_input_fn(*TEST, 10), every_steps=9),
    ]
    make(tmp_path, eval_sets=sets, eval_every_steps=None).train_and_evaluate()
    passes = [(row['step'], row['stream']) for row in lines(tmp_path / 'metrics.jsonl') if row['stream'] != 'train']
    assert passes == [
        (6, 'valid'),
        (9, 'test'),
        (12, 'valid'),
        (18, 'valid'),
        (18, 'test'),
        (20, 'valid'),
        (20, 'test'),
    ]


def test_a_finished_run_started_again_gives_its_result_without_another_pass(tmp_path):
    first = make(tmp_path).train_and_evaluate()
    rows = lines(tmp_path / 'metrics.jsonl')
    again = make(tmp_path).train_and_evaluate()
    assert (again.status, again.global_step) == ('done', 20)
    assert float(again.metrics['valid']['accuracy']) == float(first.metrics['valid']['accuracy'])
    assert lines(tmp_path / 'metrics.jsonl') == rows


def test_more_steps_go_on_from_the_newest_commit(tmp_path):
    make(tmp_path).train_and_evaluate()
    result = make(tmp_path, train_steps=35).train_and_evaluate()
    assert result.global_step == 35
    passes = [row['step'] for row in lines(tmp_path / 'metrics.jsonl') if row['stream'] == 'valid']
    assert passes == [10, 20, 30, 35]


def test_a_drawn_seed_is_kept_by_the_run(tmp_path):
    make(tmp_path, seed=None).train()
    drawn = json.loads((tmp_path / 'provenance.json').read_text())['seed']
    make(tmp_path, seed=None, train_steps=30).train()
    assert json.loads((tmp_path / 'provenance.json').read_text())['seed'] == drawn


def test_evaluate_alone_gives_the_numbers_of_the_run(tmp_path):
    ran = make(tmp_path, model_fn=deterministic_bn_model_fn).train_and_evaluate()
    alone = make(tmp_path, model_fn=deterministic_bn_model_fn).evaluate()
    assert alone.global_step == 20
    assert set(alone.metrics) == {'valid', 'test'}
    for stream, metrics in alone.metrics.items():
        assert {k: float(v) for k, v in metrics.items()} == {k: float(v) for k, v in ran.metrics[stream].items()}


def deterministic_bn_model_fn(features, labels, mode):
    hidden = tf.keras.layers.Dense(4)(features)
    hidden = v1.layers.batch_normalization(hidden, training=mode == ModeKeys.TRAIN, momentum=0.5)
    logits = v1.layers.dense(hidden, 2)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        train_op = v1.train.AdamOptimizer(0.05).minimize(loss, v1.train.get_global_step())
    metrics = {'accuracy': v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def test_evaluate_takes_chosen_sets_and_a_checkpoint(tmp_path):
    make(tmp_path).train_and_evaluate()
    result = make(tmp_path).evaluate(sets=['test'], checkpoint=str(tmp_path / 'model.ckpt-10'))
    row = next(r for r in lines(tmp_path / 'metrics.jsonl') if (r['step'], r['stream']) == (10, 'test'))
    assert result.global_step == 10
    assert {k: float(v) for k, v in result.metrics['test'].items()} == row['metrics']
    assert 'valid' not in result.metrics


def test_evaluate_runs_beside_a_training(tmp_path):
    inside = []

    class Beside(v1.train.SessionRunHook):
        def end(self, session):
            with tf.Graph().as_default():
                inside.append(make(tmp_path, eval_every_steps=None).evaluate())

    make(tmp_path, train_hooks=[Beside()]).train()
    assert inside[0].status == 'done'


def test_smoke_tries_everything_and_leaves_nothing(tmp_path):
    result = make(tmp_path / 'run').smoke()
    assert result.global_step == 2
    assert set(result.metrics) == {'valid', 'test', 'train'}
    assert not (tmp_path / 'run').exists()


def test_a_failed_run_leaves_a_result_that_says_why(tmp_path):
    class Fails(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise RuntimeError('the disk of the user is on fire')

    with pytest.raises(RuntimeError, match='on fire'):
        make(tmp_path, train_hooks=[Fails()]).train()
    result = json.loads((tmp_path / 'result.json').read_text())
    assert result['status'] == 'failed'
    assert 'on fire' in result['stop_reason']


def test_a_graph_that_can_not_be_built_leaves_a_failed_result(tmp_path):
    def model_fn(features, labels, mode):
        raise KeyError('a slip in model_fn')

    make(tmp_path).train()
    with pytest.raises(KeyError):
        make(tmp_path, model_fn=model_fn, train_steps=30).train()
    result = json.loads((tmp_path / 'result.json').read_text())
    assert (result['status'], result['global_step']) == ('failed', 20)
    assert 'a slip in model_fn' in result['stop_reason']


def test_a_result_of_the_start_before_is_gone_while_a_run_runs(tmp_path):
    there = []

    class Look(v1.train.SessionRunHook):
        def begin(self):
            there.append((tmp_path / 'result.json').exists())

    make(tmp_path).train()
    assert (tmp_path / 'result.json').exists()
    make(tmp_path, train_steps=30, train_hooks=[Look()]).train()
    assert there == [False]


def test_a_slip_that_is_refused_before_anything_is_built_leaves_the_result_alone(tmp_path):
    make(tmp_path).train()
    with pytest.raises(errors.ConfigurationError, match='train_input_fn` is missing'):
        make(tmp_path, train_input_fn=None).train()
    assert json.loads((tmp_path / 'result.json').read_text())['status'] == 'done'


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_before_the_first_batches_are_tried_out_ends_the_run_with_a_commit(tmp_path, number, code):
    class Kill(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            os.kill(os.getpid(), number)

    result = make(tmp_path, train_hooks=[Kill()]).train_and_evaluate()
    assert (result.status, result.exit_code, result.global_step) == ('interrupted', code, 0)
    assert json.loads((tmp_path / 'result.json').read_text())['status'] == 'interrupted'
    assert (tmp_path / 'commits' / 'commit-0.json').exists()
    assert make(tmp_path).train_and_evaluate().status == 'done'


def test_weights_that_a_set_of_its_own_graph_can_not_take_are_no_matter_of_commits(tmp_path):
    def model_fn(features, labels, mode):
        v1.get_variable('extra', [2 if mode == ModeKeys.EVAL else 3], trainable=False)
        return testing.linear_model_fn(features, labels, mode)

    text = (
        r'The weights of step 0, for `valid` in a graph of its own, can not be restored: it is of another model '
        r'\[`extra` has shape \(3,\), the model \(2,\)\]\. model_fn must make the same variables when it evaluates'
    )
    with pytest.raises(errors.RunDirectoryError, match=text):
        make(tmp_path, model_fn=model_fn, evaluation_graph='separate').train_and_evaluate()


@pytest.mark.parametrize('evaluation_graph', ['auto', 'separate'])
def test_a_count_that_only_evaluation_keeps_is_its_own(tmp_path, evaluation_graph):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        count = v1.get_variable('batches', [], initializer=v1.zeros_initializer(), trainable=False)
        value = count.read_value()
        with tf.control_dependencies([features]):  # else also the run that meets the end of the data counts
            return spec._replace(eval_metric_ops={'batches': (value, count.assign_add(1.0))})

    settings = {'model_fn': model_fn, 'evaluation_graph': evaluation_graph}
    ran = make(tmp_path, **settings).train_and_evaluate().metrics
    alone = make(tmp_path, **settings).evaluate().metrics
    assert [float(metrics['valid']['batches']) for metrics in (ran, alone)] == [5, 5]
    assert 'batches' not in testing.checkpoint_values(str(tmp_path / 'model.ckpt-20'))


def test_a_trainable_variable_of_a_separate_graph_is_refused_before_training(tmp_path):
    def model_fn(features, labels, mode):
        if mode == ModeKeys.EVAL:
            v1.get_variable('head', [])
        return testing.linear_model_fn(features, labels, mode)

    with pytest.raises(errors.ConfigurationError, match='`head`: trainable, made by evaluation of valid'):
        make(tmp_path, model_fn=model_fn, evaluation_graph='separate').train_and_evaluate()
    assert not list(tmp_path.glob('model.ckpt*'))


def test_a_metric_value_that_reads_the_batch_is_refused_by_name(tmp_path):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        metrics = {'largest': (tf.reduce_max(features), tf.no_op())}
        return spec if mode == ModeKeys.TRAIN else spec._replace(eval_metric_ops=metrics)

    with pytest.raises(errors.ConfigurationError, match=r'value of a metric of `valid` \[largest\] reads the batch'):
        make(tmp_path, model_fn=model_fn).train_and_evaluate()


@pytest.mark.parametrize('evaluation_graph', ['auto', 'separate'])
def test_an_endless_set_is_refused_before_training(tmp_path, evaluation_graph):
    def endless():
        return tf.data.Dataset.from_tensor_slices(VALID).repeat().batch(10)

    with pytest.raises(errors.ConfigurationError, match='`valid`: its Dataset is infinite'):
        make(tmp_path, eval_sets={'valid': endless}, evaluation_graph=evaluation_graph).train_and_evaluate()
    assert not list(tmp_path.glob('model.ckpt*'))


def test_checkpoints_that_nothing_names_are_not_written_over(tmp_path):
    make(tmp_path).train()
    for path in [*tmp_path.glob('commits/*'), tmp_path / 'checkpoint']:
        path.unlink()
    with pytest.raises(errors.RunDirectoryError, match=r'holds checkpoints \[model.ckpt-\d+.index\] but neither'):
        make(tmp_path).train()


def test_another_dtype_in_the_checkpoint_is_named(tmp_path):
    def model_fn(dtype):
        def model_fn(features, labels, mode):
            v1.get_variable('state', [], dtype, v1.zeros_initializer(), trainable=False)
            return testing.linear_model_fn(features, labels, mode)

        return model_fn

    make(tmp_path, model_fn=model_fn(tf.float32)).train()
    with pytest.raises(errors.RunDirectoryError, match='`state` has dtype float32, the model float64'):
        make(tmp_path, model_fn=model_fn(tf.float64), train_steps=30).train()


def test_a_saver_hook_in_the_run_directory_lends_its_cadence_and_a_second_one_is_left_out(tmp_path, caplog):
    class Own(v1.train.CheckpointSaverHook):
        pass

    hooks = [v1.train.CheckpointSaverHook(str(tmp_path), save_steps=8), Own(str(tmp_path), save_steps=1)]
    make(tmp_path, train_hooks=hooks).train()
    assert f'`Own` [{tmp_path}] is left out, with its listeners: another one saves there.' in caplog.text
    saved = {f'model.ckpt-{step}.index' for step in (0, 8, 16, 20)}
    assert {path.name for path in tmp_path.glob('model*.index')} == saved


def test_evaluate_keeps_a_record_of_its_own(tmp_path):
    make(tmp_path).train_and_evaluate()
    curves = tensorboard.read_scalars(str(tmp_path / 'eval_valid'))
    result = make(tmp_path).evaluate(sets=['valid'], checkpoint=str(tmp_path / 'model.ckpt-10'))
    (line,) = lines(tmp_path / 'evaluations.jsonl')
    assert (line['step'], line['stream']) == (10, 'valid')
    assert line['metrics']['loss'] == float(result.metrics['valid']['loss'])
    assert tensorboard.read_scalars(str(tmp_path / 'eval_valid')) == curves


def test_functions_see_the_directory_and_the_seed_in_their_config(tmp_path):
    seen = []

    def model_fn(features, labels, mode, config):
        seen.append((config.model_dir, config.tf_random_seed))
        return testing.linear_model_fn(features, labels, mode)

    make(tmp_path, model_fn=model_fn).train()
    assert seen == [(str(tmp_path), 1)]


def test_evaluation_of_a_checkpoint_that_is_not_there_says_so(tmp_path):
    make(tmp_path).train()
    with pytest.raises(
        errors.RunDirectoryError, match=r'ckpt-11` can not be restored: there is no such checkpoint\. Name'
    ):
        make(tmp_path).evaluate(checkpoint=str(tmp_path / 'model.ckpt-11'))


def test_training_alone_reports_no_pass_of_an_older_step(tmp_path):
    make(tmp_path).train_and_evaluate()
    assert set(make(tmp_path).train().metrics) == {'valid', 'test'}  # of the last step
    assert set(make(tmp_path, train_steps=30).train().metrics) == {'train'}


def test_a_metric_named_loss_per_example_reaches_the_event_files(tmp_path):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.EVAL:
            return spec
        return spec._replace(eval_metric_ops={'loss_per_example': v1.metrics.mean(tf.constant(7.0))})

    make(tmp_path, model_fn=model_fn).train_and_evaluate()
    curves = tensorboard.read_scalars(str(tmp_path / 'eval_valid'))
    assert curves['loss_per_example'] == [(10, 7.0), (20, 7.0)]


@pytest.mark.parametrize('name', ['eval_at_start', 'require_equal_structures'])
@pytest.mark.parametrize('value', ['False', 1, None])
def test_a_switch_is_true_or_false(tmp_path, name, value):
    with pytest.raises(errors.ConfigurationTypeError, match=rf'`Experiment\.{name}` \[{value!r}\] must be True or'):
        make(tmp_path, **{name: value})


def test_params_reach_model_fn_and_input_fn_as_copies(tmp_path):
    given = {'rate': 0.1}

    def model_fn(features, labels, mode, params):
        params['rate'] /= 2
        return testing.linear_model_fn(features, labels, mode, params['rate'])

    make(tmp_path, model_fn=model_fn, params=given).train_and_evaluate()
    assert given == {'rate': 0.1}


def test_variables_of_unknown_shape_are_told_with_question_marks(tmp_path, caplog):
    def model_fn(features, labels, mode):
        for name, shape in (('rows', [None, 6]), ('anything', tf.TensorShape(None))):
            v1.Variable(np.zeros([2, 6]), name=name, trainable=False, validate_shape=False, shape=shape)
        return testing.linear_model_fn(features, labels, mode)

    caplog.set_level('INFO', logger='absl')
    assert make(tmp_path, model_fn=model_fn, eval_sets=()).train().status == 'done'
    (table,) = [record.message for record in caplog.records if record.message.startswith('Schedule:')]
    found = [line.replace(' ', '') for line in table.splitlines()]
    assert '|rows|[?,6]|?|no||' in found
    assert '|anything|?|?|no||' in found
    assert '|total||9+|||' in found  # 4 x 2 weights and the global step


def test_a_second_training_in_the_directory_is_refused(tmp_path):
    class Second(v1.train.SessionRunHook):
        def begin(self):
            with pytest.raises(errors.RunDirectoryError, match='in use'):
                make(tmp_path).train()

    assert make(tmp_path, train_hooks=[Second()]).train().status == 'done'


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({'model_dir': 5}, r'`Experiment.model_dir` \[5\] must be a path'),
        ({'eval_sets': {'x' * 300: testing.array_input_fn(*VALID, 10)}}, 'of 300 characters'),
        ({'train_hooks': 5}, r'`Experiment.train_hooks` \[5\] must be a list'),
        ({'train_steps': 10**30}, '`Experiment.train_steps`'),
    ],
)
def test_a_setting_of_another_kind_is_refused(tmp_path, changes, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        make(tmp_path, **changes)


def test_params_that_can_not_be_copied_are_refused(tmp_path):
    def model_fn(features, labels, mode, params):
        raise AssertionError('never called')

    with pytest.raises(errors.ConfigurationError, match=r'`Experiment.params` \[generator\] can not be copied'):
        make(tmp_path, model_fn=model_fn, params=(i for i in range(3))).train()


@pytest.mark.parametrize(
    ('field', 'value'),
    [('previous_step', None), ('step', 99), ('runs', '20'), ('checkpoint', ''), ('exhausted', 0.5), ('seed', 'one')],
)
def test_a_commit_record_of_wrong_values_is_named_and_the_one_before_taken(tmp_path, caplog, field, value):
    make(tmp_path).train()
    path = tmp_path / 'commits' / 'commit-20.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(errors.RunDirectoryError, match=rf'commit-20.json` is damaged \[`{field}` is'):
        make(tmp_path).evaluate()
    assert make(tmp_path, train_steps=30).train().global_step == 30
    assert f'commit-20.json` is damaged [`{field}` is' in caplog.text
    assert 'Going on from the commit before: step 10.' in caplog.text


@pytest.mark.parametrize('call', ['after_create_session', 'end'])
def test_a_stop_iteration_of_an_evaluation_hook_is_named(tmp_path, call):
    def stops(*arguments):
        raise StopIteration('h')

    hook = type('Hook', (v1.train.SessionRunHook,), {call: stops})()
    sets = [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=[hook])]
    with pytest.raises(errors.RunError, match='StopIteration escaped from a hook of an evaluation'):
        make(tmp_path, eval_sets=sets).train_and_evaluate()
