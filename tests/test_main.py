"""The binary: exit codes, refusals, and a run that is stopped and started again."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import gin
import keras
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.compat import v1

from framework import EstimatorSpec, ModeKeys, comparison, config, main, run_dir, testing

FEATURES, LABELS = testing.blobs(40)
KEYS = v1.GraphKeys


# A model and an input function that can be wrong in every way that the table below lists.


@gin.configurable(module='slip')
def model_fn(features, labels, mode, fault=None):
    spec = testing.linear_model_fn(features, labels, mode)
    replace = spec._replace
    train = mode == ModeKeys.TRAIN
    if fault == 'no spec':
        return spec.loss
    if fault == 'no train op':
        return EstimatorSpec(ModeKeys.TRAIN, loss=spec.loss) if train else spec
    if fault == 'no loss':
        return EstimatorSpec(mode, train_op=spec.train_op)
    if fault == 'loss per example':
        return replace(loss=tf.zeros([3]))
    if fault == 'another mode':
        return EstimatorSpec(ModeKeys.PREDICT, predictions=features)
    if fault == 'metric named loss' and not train:
        return replace(eval_metric_ops={'loss': v1.metrics.mean(features)})
    if fault == 'metric without update' and not train:
        return replace(eval_metric_ops={'mean': tf.reduce_mean(features)})
    if fault == 'hook':
        return replace(training_hooks=['a hook'])
    if fault == 'scaffold':
        return replace(scaffold='scaffold')
    if fault == 'trainable in EVAL' and not train:
        return replace(loss=spec.loss + v1.get_variable('extra', []))
    if fault == 'shape clash':
        return replace(loss=spec.loss + tf.reduce_sum(tf.Variable(tf.zeros([2 if train else 3]), name='bias')))
    if fault == 'dtype clash':
        bias = tf.Variable(tf.zeros([], tf.float32 if train else tf.float64), name='bias')
        return replace(loss=spec.loss + tf.cast(bias, tf.float32))
    if fault == 'shape clash of get_variable':
        return replace(loss=spec.loss + tf.reduce_sum(v1.get_variable('bias', [2 if train else 3])))
    if fault == 'no weight moved':
        return replace(train_op=v1.train.get_global_step().assign_add(1).op) if train else spec
    if fault == 'step stands still':
        return replace(train_op=v1.train.GradientDescentOptimizer(0.1).minimize(spec.loss)) if train else spec
    if fault == 'keras 3 layer':
        return replace(loss=tf.reduce_mean(keras.layers.Dense(2)(features)))
    if fault == 'keras 3 dropout':
        return replace(loss=spec.loss + tf.reduce_sum(keras.layers.Dropout(0.5)(features, training=True)))
    if fault == 'keras 3 metric':
        return replace(eval_metric_ops={'mean': keras.metrics.Mean()})
    if fault == 'new-style optimizer' and train:
        variables = v1.trainable_variables()
        pairs = zip(v1.gradients(spec.loss, variables), variables, strict=True)
        counted = tf.keras.optimizers.Adam().apply_gradients(pairs)
        return replace(train_op=tf.group(counted, v1.train.get_global_step().assign_add(1)))
    if fault == 'other graph':
        with tf.Graph().as_default():
            return replace(loss=tf.constant(0.0))
    return spec


@gin.configurable(module='slip')
def input_fn(mode, fault=None, batch_size=10):
    dataset = testing.array_input_fn(FEATURES, LABELS, batch_size)(mode)
    return {
        None: dataset,
        'arrays': (FEATURES, LABELS),
        'triple': dataset.map(lambda x, y: (x, y, y)),
        'empty': dataset.take(0),
        'endless': dataset.repeat(),
        'wide': dataset.map(lambda x, y: (tf.concat([x, x], 1), y)),
    }[fault]


@gin.configurable(module='slip')
def no_features_fn(labels, mode):
    raise AssertionError('never called')


@gin.configurable(module='slip', denylist=['width'])
def extra_argument_fn(features, labels, mode, width):
    raise AssertionError('never called')


@gin.configurable(module='slip')
def no_labels_fn(features, mode):
    raise AssertionError('never called')


@gin.configurable(module='slip')
def needy_input_fn(split):
    raise AssertionError('never called')


@gin.configurable(module='slip')
def failing_fn(features, labels, mode):
    raise KeyError('of the user')


GOOD = {
    'Experiment.model_fn': '@slip.model_fn',
    'Experiment.train_input_fn': '@train/slip.input_fn',
    'Experiment.eval_sets': '[@valid/EvalSet(), @test/EvalSet()]',
    'valid/EvalSet.name': "'valid'",
    'valid/EvalSet.input_fn': '@valid/slip.input_fn',
    'test/EvalSet.name': "'test'",
    'test/EvalSet.input_fn': '@test/slip.input_fn',
    'Experiment.train_steps': '4',
    'Experiment.run_config': '@RunConfig()',
    'RunConfig.save_checkpoints_steps': '2',
}


def run(directory: pathlib.Path, changes: dict[str, str] | None = None, *arguments: str) -> int:
    """Runs the binary in this process: a value of None takes a binding out."""
    bindings = {name: value for name, value in {**GOOD, **(changes or {})}.items() if value is not None}
    values = flags.FlagValues()
    main.define_flags(values)
    values(['main', f'--model_dir={directory}', *(f'--gin_param={k} = {v}' for k, v in bindings.items()), *arguments])
    return main.run(values)


def test_a_good_configuration_runs(tmp_path):
    assert run(tmp_path) == 0
    assert json.loads((tmp_path / 'result.json').read_text())['global_step'] == 4


MODEL = 'slip.model_fn.fault'
TRAIN = 'train/slip.input_fn.fault'
VALID = 'valid/slip.input_fn.fault'

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    # model_fn
    'no model_fn': ({'Experiment.model_fn': None}, '`Experiment.model_fn` is missing'),
    'model_fn without features': ({'Experiment.model_fn': '@slip.no_features_fn'}, 'must include features argument'),
    'model_fn with an unbound argument': (
        {'Experiment.model_fn': '@slip.extra_argument_fn'},
        "extra_argument_fn.*following not expected args: .*'width'|`width`",
    ),
    'model_fn without labels': ({'Experiment.model_fn': '@slip.no_labels_fn'}, 'labels'),
    'params that nobody takes': ({'Experiment.params': '{"a": 1}'}, 'params'),
    # what it returns
    'no EstimatorSpec': ({MODEL: "'no spec'"}, 'model_fn should return an EstimatorSpec'),
    'no loss': ({MODEL: "'no loss'"}, 'Missing loss'),
    'no train_op': ({MODEL: "'no train op'"}, 'Missing train_op'),
    'loss that is no scalar': ({MODEL: "'loss per example'"}, 'Loss must be scalar, given'),
    'spec of another mode': ({MODEL: "'another mode'"}, 'mode'),
    'metric of a reserved name': ({MODEL: "'metric named loss'"}, '"loss" is not allowed'),
    'metric without an update': ({MODEL: "'metric without update'"}, r'must be \(metric_value, update_op\) tuples'),
    'hook that is none': ({MODEL: "'hook'"}, 'All hooks must be SessionRunHook instances'),
    'scaffold that is none': ({MODEL: "'scaffold'"}, 'scaffold must be tf.train.Scaffold'),
    'tensor of another graph': ({MODEL: "'other graph'"}, 'must be from the default graph'),
    # sharing
    'trainable variable only in EVAL': ({MODEL: "'trainable in EVAL'"}, '`extra`: trainable, made by evaluation of'),
    'shape clash': ({MODEL: "'shape clash'"}, r'`bias` \[\(3,\) float32\] .* \[\(2,\) float32\]'),
    'shape clash of get_variable': (
        {MODEL: "'shape clash of get_variable'"},
        r'variable bias, but specified shape \(3,\) and found shape \(2,\)\. model_fn must make the same',
    ),
    'dtype clash': ({MODEL: "'dtype clash'"}, '`bias`.*float64.*float32'),
    # Keras, and train ops that don't train
    'Keras 3 layer': ({MODEL: "'keras 3 layer'"}, r'`kernel` is made by Keras 3 \[Dense\]'),
    'Keras 3 dropout': ({MODEL: "'keras 3 dropout'"}, 'made by Keras 3'),
    'Keras 3 metric': ({MODEL: "'keras 3 metric'"}, 'made by Keras 3'),
    'new-style Keras optimizer': (
        {MODEL: "'new-style optimizer'"},
        'changes none of the 1 trainable variables. Return what `optimizer.minimize',
    ),
    'train op that moves no weight': ({MODEL: "'no weight moved'"}, 'changes none of the 1 trainable variables'),
    'train op that leaves the step': ({MODEL: "'step stands still'"}, 'does not move `global_step`'),
    # input
    'no train_input_fn': ({'Experiment.train_input_fn': None}, '`Experiment.train_input_fn` is missing'),
    'input_fn that returns arrays': ({TRAIN: "'arrays'"}, 'must return a tf.data.Dataset'),
    'elements of three': ({TRAIN: "'triple'"}, r'\(features, labels\) as a len 2 tuple'),
    'no training data': ({TRAIN: "'empty'"}, '`Experiment.train_input_fn` gave no batch'),
    'empty set': ({VALID: "'empty'"}, '`valid` gave no batch'),
    'endless set': ({VALID: "'endless'"}, '`valid`: its Dataset is infinite'),
    'other structure': (
        {VALID: "'wide'", 'Experiment.require_equal_structures': 'True'},
        '(?s)valid.*another structure.*require_equal_structures',
    ),
    'input_fn with an unbound argument': ({'Experiment.train_input_fn': '@slip.needy_input_fn'}, 'split'),
    'input_fn that is none': ({'Experiment.train_input_fn': '3'}, 'Experiment.train_input_fn'),
    # sets
    'two sets of one name': ({'test/EvalSet.name': "'valid'"}, r'`EvalSet.name` \[valid\] is used by 2 sets'),
    'reserved set name': ({'valid/EvalSet.name': "'train'"}, 'train'),
    'set name that is no directory': ({'valid/EvalSet.name': "'a/b'"}, 'a/b'),
    'sets without parentheses': ({'Experiment.eval_sets': '[@valid/EvalSet]'}, 'with the parentheses'),
    'sets that are none': ({'Experiment.eval_sets': "'valid'"}, '`Experiment.eval_sets`'),
    'period of zero': ({'valid/EvalSet.every_steps': '0'}, r'`EvalSet.every_steps` \[0\] must be a positive integer'),
    'limit of zero': ({'valid/EvalSet.steps': '0'}, r'`EvalSet.steps` \[0\] must be a positive integer'),
    # settings
    'no steps': ({'Experiment.train_steps': '0'}, r'`Experiment.train_steps` \[0\] must be a positive integer'),
    'half a step': ({'Experiment.train_steps': '2.5'}, r'`Experiment.train_steps` \[2.5\] must be a positive integer'),
    'negative period': ({'Experiment.eval_every_steps': '-1'}, r'`Experiment.eval_every_steps` \[-1\] must be'),
    'both cadences': ({'RunConfig.save_checkpoints_secs': '60'}, 'can not be provided both'),
    'negative log period': ({'RunConfig.log_step_count_steps': '-5'}, r'`RunConfig.log_step_count_steps` \[-5\]'),
    'negative limit': ({'RunConfig.keep_checkpoint_max': '-1'}, r'`RunConfig.keep_checkpoint_max` \[-1\]'),
    'run_config without parentheses': ({'Experiment.run_config': '@RunConfig'}, 'must be a RunConfig'),
    'two seeds': ({'Experiment.seed': '1', 'RunConfig.tf_random_seed': '2'}, 'mean the same and differ'),
    'seed that is none': ({'Experiment.seed': '-1'}, r'`Experiment.seed` \[-1\] must be an integer'),
    'two directories': ({'RunConfig.model_dir': "'elsewhere'"}, 'mean the same and differ'),
    'hooks that are none': ({'Experiment.train_hooks': "['hook']"}, 'SessionRunHook instances'),
    # gin
    'unknown configurable': ({'Experimnt.seed': '1'}, 'Did you mean `Experiment`'),
    'unknown parameter': ({'Experiment.train_step': '1'}, 'train_steps'),
    'unknown reference': ({'Experiment.model_fn': '@slip.modle_fn'}, 'Did you mean `@?slip.model_fn`'),
    'unknown macro': ({'Experiment.train_steps': '%STEPS'}, 'STEPS'),
    'bad literal': ({'Experiment.train_steps': '1 +'}, 'Experiment.train_steps'),
    'unquoted string': ({'valid/EvalSet.name': 'valid'}, 'valid'),
}


@pytest.mark.parametrize('name', REFUSALS)
def test_a_slip_is_refused_with_its_sentence_and_exit_code_2(name, tmp_path, capsys):
    changes, text = REFUSALS[name]
    code = run(tmp_path, changes)
    error = capsys.readouterr().err
    assert code == 2
    assert 'Traceback' not in error
    assert_matches(text, next(part for part in error.split('error: ') if part.strip()) if 'error: ' in error else error)
    assert not list(tmp_path.glob('model.ckpt-[1-9]*')), 'nothing was trained'


def assert_matches(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=text):
        raise ValueError(error)


@pytest.mark.parametrize(
    ('arguments', 'text'),
    [
        (['--mode=evalute'], r'`--mode` \[evalute\] is none of the modes. Did you mean `evaluate`'),
        (['--gin_file=nowhere/base.gin'], 'nowhere/base.gin'),
        (['--mode=evaluate', '--sets=vlid'], r'`sets` \[vlid\]: no such evaluation set. Did you mean `valid`'),
        (['--model_dir='], '`Experiment.model_dir` is missing'),
        (
            ['--sets=valid,test'],
            r'`--sets` \[valid,test\] is for `--mode=evaluate` and .* \[train_and_evaluate\]\. Leave',
        ),
        (['--mode=train', '--checkpoint=a/b'], r'`--checkpoint` \[a/b\] is for `--mode=evaluate` and .* is \[train\]'),
        (
            ['--mode=smoke', '--sets=valid'],
            r'`--sets` \[valid\] is for `--mode=evaluate` and `--mode=predict`, and the mode is \[smoke\]',
        ),
    ],
)
def test_a_slip_in_a_flag_is_refused_with_exit_code_2(arguments, text, tmp_path, capsys):
    assert run(tmp_path, {}, *arguments) == 2
    assert_matches(text, capsys.readouterr().err)


@pytest.mark.parametrize(
    ('arguments', 'text'),
    [
        (['--mode=predict', '--sets=valid'], r'`--output` is missing, and prediction needs it'),
        (['--mode=predict', '--output=p.csv'], r'`output` \[p.csv\] must end in `.jsonl`'),
        (['--mode=predict', '--output=nowhere/p.npz'], r'must be a file in a directory that exists'),
        (['--mode=predict', '--output=p.npz', '--sets=valid,test'], r'`--sets` \[valid,test\] names several sets'),
        (['--mode=evaluate', '--all', '--checkpoint=best'], r'`--all` and `--checkpoint` \[best\] say different'),
        (['--mode=export', '--all'], r'`--all` \[True\] is for `--mode=evaluate`, and the mode is \[export\]'),
        (['--mode=smoke', '--output=p.npz'], r'`--output` \[p.npz\] is for `--mode=predict`'),
    ],
)
def test_a_slip_in_the_flags_of_a_mode_is_refused_with_exit_code_2(arguments, text, tmp_path, capsys):
    assert run(tmp_path, {}, *arguments) == 2
    assert_matches(text, capsys.readouterr().err)


def test_every_mode_runs(tmp_path, capsys):
    assert run(tmp_path, {'Experiment.keep_best': '@KeepBest()', 'KeepBest.metric': '"valid/loss"'}) == 0
    for arguments in (
        ['--mode=evaluate', '--checkpoint=best'],
        ['--mode=evaluate', '--all', '--sets=valid'],
        ['--mode=predict', f'--output={tmp_path}/p.jsonl', '--sets=valid', '--checkpoint=best'],
        ['--mode=export', '--checkpoint=best'],
        ['--mode=describe'],
        ['--mode=smoke'],
    ):
        config.clear()
        capsys.readouterr()
        assert run(tmp_path, {}, *arguments) == 0, arguments
        said = capsys.readouterr().out
        if '--mode=export' in arguments:
            assert (pathlib.Path(said.strip()) / 'saved_model.pb').is_file()
        assert ('Train to step 4' in said) == ('--mode=describe' in arguments)
    assert (tmp_path / 'p.jsonl').read_text().count('\n') == 40


def test_evaluation_without_a_checkpoint_is_refused_with_exit_code_3(tmp_path, capsys):
    assert run(tmp_path, {}, '--mode=evaluate') == 3
    assert_matches('holds no checkpoint. Train first', capsys.readouterr().err)


def test_a_directory_in_use_is_refused_within_a_second_with_exit_code_3(tmp_path, capsys):
    with run_dir.RunDir(tmp_path).locked():
        start = time.monotonic()
        assert run(tmp_path) == 3
        assert time.monotonic() - start < 1.0
    assert_matches(rf'is in use by process {os.getpid()} on .*: only one training', capsys.readouterr().err)


def test_truncated_checkpoints_are_refused_with_exit_code_3_and_not_taken_for_the_end_of_the_data(tmp_path, capsys):
    assert run(tmp_path) == 0
    for path in tmp_path.glob('model.ckpt-*.data-00000-of-00001'):
        os.truncate(path, 10)
    gin.clear_config()
    assert run(tmp_path, {'Experiment.train_steps': '8'}) == 3
    assert_matches('holds 3 commits, and all are damaged: .* is not as it was written', capsys.readouterr().err)
    gin.clear_config()
    assert run(tmp_path, {}, '--mode=evaluate') == 3
    assert_matches('model.ckpt-4` can not be restored: its files are damaged', capsys.readouterr().err)


def test_an_error_of_the_users_own_code_goes_through(tmp_path):
    with pytest.raises(KeyError, match='of the user'):
        run(tmp_path, {'Experiment.model_fn': '@slip.failing_fn'})


def test_a_loss_that_is_not_finite_is_exit_code_1(tmp_path, capsys):
    assert run(tmp_path, {'Experiment.model_fn': '@slip.nan_fn'}) == 1
    assert_matches(r'`loss` \[nan\] is not finite at step 1', capsys.readouterr().err)
    assert json.loads((tmp_path / 'result.json').read_text())['status'] == 'failed'


@gin.configurable(module='slip')
def nan_fn(features, labels, mode):
    spec = testing.linear_model_fn(features, labels, mode)
    return spec._replace(loss=spec.loss * float('nan'))


def test_a_binding_that_nothing_uses_is_a_warning(tmp_path, caplog):
    assert run(tmp_path, {'unused/slip.input_fn.batch_size': '3'}) == 0
    assert 'unused/slip.input_fn.batch_size' in caplog.text


def test_every_spelling_of_the_gin_flags_is_accepted(tmp_path):
    for name, flag in enumerate(('gin_file', 'gin_files')):
        path = tmp_path / f'{name}.gin'
        path.write_text('Experiment.train_steps = 3\n')
        values = flags.FlagValues()
        main.define_flags(values)
        values(['main', f'--{flag}={path}', '--gin_params=Experiment.seed = 1', '--gin_bindings=Experiment.seed = 2'])
        gin.clear_config()
        main.run(values)  # fails for want of a model_fn, after the files and bindings were read
        assert gin.query_parameter('Experiment.train_steps') == 3
        assert gin.query_parameter('Experiment.seed') == 2


# Repeating a recorded run.


@gin.configurable(module='slip')
def drawn_fn(features, labels, mode):
    with v1.variable_scope('drawn', initializer=v1.random_normal_initializer()):
        penalty = tf.nn.l2_loss(v1.get_variable('extra', [8]))
    spec = testing.linear_model_fn(features, labels, mode)
    if mode != ModeKeys.TRAIN:
        return spec
    loss = spec.loss + 0.1 * penalty
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    return spec._replace(loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))


DRAWN = {'Experiment.model_fn': '@slip.drawn_fn', 'RunConfig.log_step_count_steps': '1'}


def rerun(source: pathlib.Path, directory: pathlib.Path, *arguments: str) -> int:
    """Repeats a run as a process of its own would: gin is empty."""
    config.clear()
    values = flags.FlagValues()
    main.define_flags(values)
    values(['main', f'--rerun={source}', f'--model_dir={directory}', *arguments])
    return main.run(values)


def change_provenance(directory: pathlib.Path, **changes: Any) -> None:
    path = directory / 'provenance.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def seed_of(directory: pathlib.Path) -> int:
    return json.loads((directory / 'provenance.json').read_text())['seed']


@pytest.fixture(scope='module')
def recorded_once(tmp_path_factory):
    directory = tmp_path_factory.mktemp('recorded')
    config.clear()
    with tf.Graph().as_default():
        assert run(directory, DRAWN) == 0
    config.clear()
    return directory


@pytest.fixture
def recorded(recorded_once, tmp_path):
    """A run directory of a run whose seed was drawn."""
    return pathlib.Path(shutil.copytree(recorded_once, tmp_path / 'recorded'))


def test_a_rerun_repeats_a_run_to_the_bit_also_with_a_seed_that_was_drawn(recorded, tmp_path, caplog):
    assert rerun(recorded, tmp_path / 'b') == 0
    found = comparison.compare(recorded, tmp_path / 'b')
    assert found.equal, str(found)
    assert 'Not as recorded' not in caplog.text
    assert rerun(tmp_path / 'b', tmp_path / 'c') == 0, 'a rerun is a recorded run itself'
    assert comparison.compare(recorded, tmp_path / 'c').equal


def test_bindings_may_be_added_to_a_rerun(recorded, tmp_path):
    added = ('Experiment.train_steps = 6', 'Experiment.seed = 5')
    assert rerun(recorded, tmp_path / 'b', *(f'--gin_param={binding}' for binding in added)) == 0
    assert json.loads((tmp_path / 'b' / 'result.json').read_text())['global_step'] == 6
    assert seed_of(tmp_path / 'b') == 5
    assert comparison.compare(recorded, tmp_path / 'b').first[1].step == 0, 'another seed draws other weights'


def test_a_rerun_goes_into_its_own_directory_with_the_seed_that_was_bound(recorded, tmp_path):
    seed = seed_of(recorded)
    with open(recorded / 'config.gin', 'a') as file:
        file.write(f'RunConfig.model_dir = {str(recorded)!r}\nRunConfig.tf_random_seed = {seed}\n')
    before = sorted(recorded.iterdir())
    assert rerun(recorded, tmp_path / 'b') == 0
    assert sorted(recorded.iterdir()) == before
    assert seed_of(tmp_path / 'b') == seed


def test_a_rerun_has_the_mode_of_the_recorded_run_unless_told_otherwise(recorded, tmp_path):
    change_provenance(recorded, argv=['own_main.py', '--note', 'mine', '--mode=train'])
    for name, arguments in (('b', []), ('c', ['--mode=train_and_evaluate'])):
        assert rerun(recorded, tmp_path / name, *arguments) == 0
    lines = [(tmp_path / name / 'timeline.jsonl').read_text() for name in 'bc']
    assert ['valid' in text for text in lines] == [False, True]


def test_a_rerun_warns_of_each_thing_that_is_not_as_recorded(recorded, tmp_path, caplog):
    known = json.loads((recorded / 'provenance.json').read_text())
    known['packages']['numpy'] = '0.9'
    known['numerics'] |= {'cpu': 'abacus', 'intra_op_threads': 77}
    change_provenance(recorded, **known | {'git_commit': 'c0ffee'})
    assert rerun(recorded, tmp_path / 'b') == 0
    warnings = [record.getMessage() for record in caplog.records if 'Not as recorded' in record.getMessage()]
    assert len(warnings) == 3, warnings
    for text in ('packages.numpy: 0.9, now ', 'numerics.cpu: abacus, now ', 'git_commit: c0ffee, now '):
        assert any(text in warning for warning in warnings)


def test_a_rerun_warns_of_what_only_code_had_set(tmp_path, caplog):
    gin.bind_parameter('unused/slip.input_fn.fault', object())
    assert run(tmp_path / 'a') == 0
    assert rerun(tmp_path / 'a', tmp_path / 'b') == 0
    assert '`unused/slip.input_fn.fault` is not set here: the recorded run had its value from code' in caplog.text


@pytest.mark.parametrize(
    ('case', 'code', 'text'),
    [
        ('same directory', 2, '`--rerun` .* and `--model_dir` .* are the same directory'),
        ('no directory', 2, '`--model_dir` is missing, and `--rerun` needs it. Name a new directory'),
        ('gin file', 2, r'`--rerun` .* and `--gin_file` \[x.gin\] both say what is configured. Leave one of them out'),
        ('mode', 2, '`--rerun` .* is for `--mode=train_and_evaluate` and `--mode=train`, and the mode is .describe.'),
        ('no run', 3, "config.gin` can't be read .*No such file.* Name the directory of a run"),
        ('no gin', 3, 'config.gin` is empty, so the run was not configured by gin'),
        ('no seed', 3, r'provenance.json` records no seed \[None\]. Bind `Experiment.seed`'),
        ('damaged', 3, 'provenance.json` is damaged'),
        ('address', 3, r'\[gs://a/b\] is an address'),
        ('changed by hand', 2, r'a/config.gin, line 1, `Experimnt.seed = 1`: .*Did you mean `Experiment`'),
    ],
)
def test_a_rerun_that_makes_no_sense_is_refused_with_its_sentence(case, code, text, tmp_path, capsys):
    source, directory = tmp_path / 'a', tmp_path / 'b'
    source.mkdir()
    content = {'no gin': '', 'changed by hand': 'Experimnt.seed = 1'}.get(case, 'Experiment.seed = 1\n')
    (source / 'config.gin').write_text(content)
    (source / 'provenance.json').write_text({'no seed': '{}', 'damaged': '{'}.get(case, '{"seed": 1}'))
    arguments = {'gin file': ['--gin_file=x.gin'], 'mode': ['--mode=describe'], 'no directory': ['--model_dir=']}
    if case == 'same directory':
        (tmp_path / 'b').symlink_to(source)
    if case == 'no run':
        source = tmp_path / 'elsewhere'
    assert rerun('gs://a/b' if case == 'address' else source, directory, *arguments.get(case, [])) == code
    error = capsys.readouterr().err
    assert_matches(text, error[error.index('error: ') :])
    assert 'Traceback' not in error


# A real process, with an absl main of a user's own.

OWN_MAIN = """
from absl import app, flags
from framework import main as framework_main
import own_model

flags.DEFINE_integer('stop_at', 0, 'A flag of my own.')
framework_main.define_flags()


def main(argv):
  own_model.STOP_AT = flags.FLAGS.stop_at
  raise SystemExit(framework_main.run())


if __name__ == '__main__':
  app.run(main, flags_parser=framework_main.parse_flags)
"""
OWN_MODEL = """
import os, signal
import gin
from tensorflow.compat import v1
from framework import testing

STOP_AT = 0


class Stop(v1.train.SessionRunHook):
    runs = 0

    def after_run(self, run_context, run_values):
        Stop.runs += 1
        if Stop.runs == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)


@gin.configurable(module='own')
def model_fn(features, labels, mode):
    return testing.linear_model_fn(features, labels, mode)._replace(training_hooks=[Stop()])


@gin.configurable(module='own')
def input_fn(mode):
    return testing.array_input_fn(*testing.blobs(40), 10)(mode)
"""
OWN_GIN = """
Experiment.model_fn = @own.model_fn
Experiment.train_input_fn = @own.input_fn
Experiment.eval_sets = @EvalSet()
EvalSet.name = 'valid'
EvalSet.input_fn = @own.input_fn
Experiment.train_steps = 300
Experiment.eval_every_steps = 50
Experiment.run_config = @RunConfig()
RunConfig.save_checkpoints_steps = 100
"""


def own_binary(tmp_path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a user's binary with a hard limit; it has no children, so ending it ends everything."""
    for name, text in {'own_main.py': OWN_MAIN, 'own_model.py': OWN_MODEL, 'own.gin': OWN_GIN}.items():
        (tmp_path / name).write_text(text)
    root = pathlib.Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, 'own_main.py', '--gin_file=own.gin', '--model_dir=run', *arguments],
        cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_main_of_the_users_own_has_at_most_15_lines():
    assert len([line for line in OWN_MAIN.splitlines() if line]) <= 15


def test_sigterm_commits_and_the_same_command_goes_on_in_the_right_phase(tmp_path):
    # step  0    50   100   137 SIGTERM | start   150   200   250   300
    #            E     E    commit      |          E     E     E     E
    stopped = own_binary(tmp_path, '--stop_at=137')
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert passes(tmp_path) == [50, 100]
    assert (tmp_path / 'run' / 'model.ckpt-137.index').exists()
    assert json.loads((tmp_path / 'run' / 'result.json').read_text())['status'] == 'interrupted'
    finished = own_binary(tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert passes(tmp_path) == [50, 100, 150, 200, 250, 300]
    trained = [row for row in phases(tmp_path) if row['phase'] == 'train']
    assert sum(row['steps'] for row in trained) == 300
    refused = own_binary(tmp_path, '--gin_param=own.model_fn.nothing = 1')
    assert (refused.returncode, refused.stdout) == (2, '')
    assert 'nothing' in refused.stderr
    assert 'Traceback' not in refused.stderr


def phases(tmp_path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / 'run' / 'timeline.jsonl').read_text().splitlines()]


def passes(tmp_path: pathlib.Path) -> list[int]:
    return [row['step'] for row in phases(tmp_path) if row['phase'] == 'evaluate']
