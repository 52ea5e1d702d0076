"""`train_and_evaluate`: one graph and one session; when evaluations and exports are made."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, estimator, testing
from framework.reporting import tensorboard
from tests.estimator.conftest import FEATURES, LABELS, VALID, Seen, eval_fn, train_fn


class Recording(estimator.Exporter):
    """Keeps its calls; exports nothing."""

    def __init__(self, name='recording'):
        self.calls = []
        self._name = name

    @property
    def name(self):
        return self._name

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        assert v1.train.load_variable(checkpoint_path, 'global_step') == eval_result['global_step']
        self.calls.append((int(eval_result['global_step']), is_the_final_export))
        return f'{export_path}/{len(self.calls)}'


def config(**changes):
    return estimator.RunConfig(**{'tf_random_seed': 1, 'save_checkpoints_steps': 5, **changes})


def run(made, eval_spec=None, max_steps=12, train_input_fn=train_fn, **changes):
    eval_spec = eval_spec or estimator.EvalSpec(eval_fn, steps=None, **changes)
    return estimator.train_and_evaluate(made, estimator.TrainSpec(train_input_fn, max_steps), eval_spec)


def evaluated_steps(made, name=None):
    return [step for step, _ in tensorboard.read_scalars(made.eval_dir(name)).get('loss', [])]


def test_it_returns_the_last_metrics_and_what_the_exporters_returned(make):
    exporter = Recording()
    made = make(config=config())
    metrics, exported = run(made, exporters=exporter)
    assert set(metrics) == {'accuracy', 'loss', 'global_step'}
    assert metrics['global_step'] == 12
    alone = made.evaluate(eval_fn)
    assert metrics['loss'] == pytest.approx(alone['loss'], rel=1e-6)
    assert exported == [f'{made.model_dir}/export/recording/3']
    assert exporter.calls == [(5, False), (10, False), (12, True)]


def test_pain_1_and_2_the_graph_is_built_once(make):
    calls = []

    def model_fn(features, labels, mode):
        calls.append(mode)
        return testing.linear_model_fn(features, labels, mode)

    run(make(model_fn, config=config()))
    assert calls == ['train', 'eval']


def test_pain_5_training_goes_on_in_its_data_across_evaluations(make):
    seen = Seen('train')
    made = make(seen.model_fn, config=config(save_checkpoints_steps=3))
    spec = estimator.TrainSpec(train_fn, 8, hooks=[seen])
    estimator.train_and_evaluate(made, spec, estimator.EvalSpec(eval_fn))
    np.testing.assert_array_equal(np.concatenate(seen.values), np.concatenate([FEATURES] * 2))


@pytest.mark.parametrize(
    'changes, spec, steps',
    [
        ({}, {}, [5, 10, 12]),
        ({}, {'throttle_secs': 0}, [5, 10, 12]),
        ({}, {'throttle_secs': 600}, [5, 12]),
        ({'eval_every_n_steps': 4}, {}, [4, 8, 12]),
        ({'eval_every_n_steps': 4}, {'throttle_secs': 600}, [4, 8, 12]),
        ({'save_checkpoints_steps': None, 'save_checkpoints_secs': 600}, {}, [12]),
    ],
)
def test_pain_30_to_34_evaluations_come_when_the_settings_say(make, changes, spec, steps):
    made = make(config=config(**changes))
    run(made, **spec)
    assert evaluated_steps(made) == steps


def test_without_any_setting_evaluations_come_every_1000_steps(make, caplog):
    caplog.set_level('INFO')
    made = make(config=estimator.RunConfig())
    run(made, max_steps=2)
    assert 'evaluate `eval` every 1000 steps and at the end; commit by the clock and at the end.' in caplog.text


def test_pain_4_several_specs_are_taken_as_a_list(make):
    made = make(config=config())
    specs = [estimator.EvalSpec(eval_fn), estimator.EvalSpec(lambda: eval_fn().take(1), name='one')]
    metrics, exported = run(made, specs)
    assert set(metrics) == set(exported) == {'eval', 'one'}
    assert metrics['one']['loss'] != metrics['eval']['loss']
    assert evaluated_steps(made) == evaluated_steps(made, 'one') == [5, 10, 12]


def test_pain_4_several_specs_are_taken_as_a_dict(make):
    metrics, _ = run(make(config=config()), {'a': estimator.EvalSpec(eval_fn), 'b': estimator.EvalSpec(eval_fn)})
    assert metrics['a'] == metrics['b']


def test_pain_36_a_run_that_had_reached_max_steps_returns_metrics_and_exports(make):
    first = run(make(config=config()), exporters=Recording())
    exporter = Recording()
    metrics, exported = run(make(config=config()), exporters=exporter)
    assert metrics == first[0]
    assert exporter.calls == [(12, True)]
    assert exported == [f'{make().model_dir}/export/recording/1']


def test_pain_37_the_end_of_the_data_is_an_end_with_an_evaluation(make, lines):
    exporter = Recording()
    metrics, _ = run(
        make(config=config()),
        max_steps=None,
        train_input_fn=lambda: testing.array_input_fn(FEATURES, LABELS, 10)('eval'),
        exporters=exporter,
    )
    assert metrics['global_step'] == 4
    assert exporter.calls == [(4, True)]
    assert 'Training ended: the training data ended at step 4.' in lines()


def test_the_final_export_comes_also_where_the_end_was_not_known_at_the_evaluation(make):
    def ten_batches():  # as tensors, whose end is found by the run behind the last
        dataset = testing.array_input_fn(*testing.blobs(100), 10)('eval')
        return v1.data.make_one_shot_iterator(dataset).get_next()

    exporter = Recording()
    metrics, exported = run(make(config=config()), max_steps=None, train_input_fn=ten_batches, exporters=exporter)
    assert exporter.calls == [(5, False), (10, False), (10, True)]
    assert (metrics['global_step'], len(exported)) == (10, 1)


def test_the_final_export_comes_after_a_hook_ended_training(make):
    exporter = Recording()
    spec = estimator.TrainSpec(train_fn, 100, hooks=[estimator.StopAtStepHook(last_step=7)])
    eval_spec = estimator.EvalSpec(eval_fn, exporters=exporter)
    estimator.train_and_evaluate(make(config=config()), spec, eval_spec)
    assert exporter.calls == [(5, False), (7, True)]


class StopsAfterSaving(estimator.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        return global_step_value == 10


def test_the_final_export_comes_after_a_listener_ended_training(make):
    exporter = Recording()
    spec = estimator.TrainSpec(train_fn, 100, saving_listeners=[StopsAfterSaving()])
    eval_spec = estimator.EvalSpec(eval_fn, exporters=exporter)
    estimator.train_and_evaluate(make(config=config()), spec, eval_spec)
    assert exporter.calls == [(5, False), (10, False), (10, True)]


def test_pain_39_and_40_a_pass_without_a_limit_reads_all(make, lines):
    seen = Seen('eval')
    made = make(seen.model_fn, config=config())
    run(made, estimator.EvalSpec(eval_fn, steps=None, hooks=[seen]), max_steps=2)
    np.testing.assert_array_equal(np.concatenate(seen.values), VALID[0])


@pytest.mark.parametrize('name', ['eval', 'train', 'valid'])
def test_every_name_has_the_directory_of_tf_estimator(make, name):
    made = make(config=config())
    metrics, _ = run(made, estimator.EvalSpec(eval_fn, name=name), max_steps=2)
    assert metrics['global_step'] == 2
    assert evaluated_steps(made, name) == [2]
    assert [step for step, _ in tensorboard.read_scalars(made.model_dir)['loss']] == [1]


@pytest.mark.parametrize('batches, warnings', [(99, 0), (101, 1)])
def test_the_default_limit_of_100_batches_is_said_where_it_is_met(make, lines, batches, warnings):
    spec = estimator.EvalSpec(lambda: eval_fn().take(1).repeat(batches))
    run(make(config=config()), spec, max_steps=10)
    text = 'The evaluation of `eval` read 100 batches, the default of `EvalSpec.steps`: '
    assert sum(line.startswith(text) for line in lines()) == warnings


@pytest.mark.parametrize('index, text', [(0, 'clusters are not here yet'), (1, 'Given task id 1')])
def test_an_evaluator_of_a_cluster_is_refused(make, monkeypatch, index, text):
    settings = {'cluster': {'chief': ['c:1'], 'ps': ['p:1']}, 'task': {'type': 'evaluator', 'index': index}}
    monkeypatch.setenv('TF_CONFIG', json.dumps(settings))
    with pytest.raises(ValueError, match=text):
        run(make(config=config()))


def test_listeners_and_the_lines_of_the_log(make, lines):
    run(make(config=config()), max_steps=5)
    told = lines()
    assert 'Running training and evaluation locally (non-distributed).' in told
    assert sum(line.startswith('Saving dict for global step 5: accuracy = ') for line in told) == 1


def test_pain_44_and_45_the_best_of_a_run_is_known_after_a_restart(make):
    exported = []

    class Best(estimator.BestExporter):
        def _export(self, estimator, export_path, checkpoint_path):
            exported.append(checkpoint_path)
            return checkpoint_path

    def model_fn(features, labels, mode, params):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode != 'eval':
            return spec
        step = v1.train.get_global_step().read_value()
        value = tf.gather(tf.constant([9, 5, 7, 3, 8, 4], tf.float32), step // 5)
        return spec._replace(eval_metric_ops={'score': (value, tf.no_op())})

    def once(max_steps):
        made = make(model_fn, config=config(), params={})
        exporter = Best(serving_input_receiver_fn=lambda: None, monitor='score', mode='min')
        run(made, max_steps=max_steps, exporters=exporter)

    once(10)  # 5 at step 5, 7 at step 10
    assert [path.rpartition('-')[2] for path in exported] == ['5']
    once(20)  # 3 at step 15, 8 at step 20
    assert [path.rpartition('-')[2] for path in exported] == ['5', '15']
    once(25)  # 4 at step 25 is not the best, though the first of its process
    assert [path.rpartition('-')[2] for path in exported] == ['5', '15']
    record = json.loads((pathlib.Path(make().model_dir) / 'commits' / 'commit-25.json').read_text())
    assert record['state']['exporters']['eval/best_exporter']['score'] == 3.0


@pytest.mark.parametrize(
    'arguments, text',
    [
        ((3, None, None), '`estimator` must have type `tf.estimator.Estimator`. Got: '),
        ((None, 3, None), '`train_spec` must have type `tf.estimator.TrainSpec`. Got: '),
        ((None, None, 3), '`eval_spec` must have type `tf.estimator.EvalSpec`. Got: '),
        ((None, None, [3]), '`eval_spec` must have type `tf.estimator.EvalSpec`. Got: '),
    ],
)
def test_arguments_of_another_type_are_refused(make, arguments, text):
    defaults = (make(), estimator.TrainSpec(train_fn, 1), estimator.EvalSpec(eval_fn))
    with pytest.raises(TypeError, match=text):
        estimator.train_and_evaluate(*(d if a is None else a for a, d in zip(arguments, defaults, strict=True)))


def test_two_specs_of_one_name_are_refused(make):
    with pytest.raises(errors.ConfigurationError, match=r'`EvalSpec.name` \[eval\] is used by 2 specs'):
        run(make(), [estimator.EvalSpec(eval_fn), estimator.EvalSpec(eval_fn)])


def test_a_run_that_saves_nothing_is_refused(make):
    with pytest.raises(ValueError, match=r'Please set one of the RunConfig\.save_checkpoints_steps'):
        run(make(config=config(save_checkpoints_steps=None)))


# The specs.


@pytest.mark.parametrize(
    'make_spec, kind, text',
    [
        (lambda: estimator.TrainSpec(1), TypeError, '`input_fn` must be callable, given: 1'),
        (lambda: estimator.TrainSpec(eval_fn, 0), ValueError, 'Must specify max_steps > 0, given: 0'),
        (lambda: estimator.TrainSpec(eval_fn, hooks=[1]), TypeError, 'All hooks must be `SessionRunHook` instances'),
        (lambda: estimator.TrainSpec(eval_fn, saving_listeners=[1]), TypeError, 'All saving_listeners must be'),
        (lambda: estimator.EvalSpec(1), TypeError, '`input_fn` must be callable, given: 1'),
        (lambda: estimator.EvalSpec(eval_fn, 0), ValueError, 'Must specify steps > 0, given: 0'),
        (lambda: estimator.EvalSpec(eval_fn, name=1), TypeError, '`name` must be string, given: 1'),
        (lambda: estimator.EvalSpec(eval_fn, start_delay_secs=-1), ValueError, 'Must specify start_delay_secs >= 0'),
        (lambda: estimator.EvalSpec(eval_fn, throttle_secs=-1), ValueError, 'Must specify throttle_secs >= 0'),
        (lambda: estimator.EvalSpec(eval_fn, exporters=1), TypeError, '`exporters` must be an Exporter'),
        (lambda: estimator.EvalSpec(eval_fn, exporters=[Recording('')]), ValueError, 'An Exporter cannot have a name'),
        (lambda: estimator.EvalSpec(eval_fn, exporters=[Recording(), Recording()]), ValueError, 'unique names'),
    ],
)
def test_specs_refuse(make_spec, kind, text):
    with pytest.raises(kind, match=text):
        make_spec()


def test_specs_are_tuples_with_the_defaults_of_tf_estimator():
    assert estimator.TrainSpec(train_fn) == (train_fn, None, (), ())
    assert estimator.EvalSpec(eval_fn) == (eval_fn, 100, None, (), (), 120, 600)
    assert estimator.EvalSpec(eval_fn)._replace(steps=3).steps == 3
