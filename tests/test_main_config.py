"""`--mode=config` and `--strict_bindings`, by the binary's own functions."""

import gin
import pytest
import tensorflow as tf
from absl import flags

from framework import config, main, testing
from framework.spec import ModeKeys


@gin.configurable(module='main_config')
def model_fn(features, labels, mode, rate=0.1):
    return testing.linear_model_fn(features, labels, mode, rate)


@gin.configurable(module='main_config')
def input_fn(mode):
    dataset = tf.data.Dataset.from_tensor_slices(testing.blobs(8))
    return (dataset.repeat() if mode == ModeKeys.TRAIN else dataset).batch(4)


CONFIG = """
Experiment.model_fn = @main_config.model_fn
Experiment.train_input_fn = @main_config.input_fn
Experiment.eval_sets = {'valid': @main_config.input_fn}
Experiment.train_steps = 3
Experiment.train_steps = 2
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the binary's function with arguments, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'run.gin').write_text(CONFIG)

    def run(*arguments):
        config.clear()
        values = flags.FlagValues()
        main.define_flags(values)
        values(['binary', '--gin_file=run.gin', *arguments])
        return main.run(values)

    return run


def test_the_configuration_is_printed_and_nothing_is_written(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tf.Graph, 'as_default', lambda _: pytest.fail('A graph was built.'))
    assert run('--mode=config', '--model_dir=d', '--gin_param=main_config.model_fn.rate = 0.5') == 0
    text = capsys.readouterr().out
    assert '\nExperiment.train_steps = 2\n' in text
    assert '`Experiment.train_steps = 3` (run.gin, line 5) is overridden by `Experiment.train_steps = 2`' in text
    assert '\nmain_config.model_fn    # ' in text
    assert '    rate = 0.5    # the command line; default 0.1\n' in text
    assert [path.name for path in tmp_path.iterdir()] == ['run.gin']


def test_the_printed_configuration_loads_again_to_the_same(run, tmp_path, capsys):
    run('--mode=config')
    text = config.config_text()
    bindings, _, _ = capsys.readouterr().out.partition('\n# `')
    (tmp_path / 'again.gin').write_text(bindings)
    config.clear()
    config.load(['again.gin'])
    assert config.config_text() == text


@pytest.mark.parametrize('mode', ['train_and_evaluate', 'smoke', 'describe'])
def test_an_unused_binding_is_refused_before_anything_is_trained(run, mode, capsys, tmp_path):
    arguments = f'--mode={mode}', '--model_dir=d', '--gin_param=nowhere/main_config.model_fn.rate = 0.5'
    assert run(*arguments) == 0
    capsys.readouterr()
    assert run(*arguments, '--strict_bindings', '--model_dir=e') == 2
    error = capsys.readouterr().err
    assert 'error: This gin binding was never used: `nowhere/main_config.model_fn.rate`.' in error
    assert '`Experiment.strict_bindings` refuses that: correct it or take it out.' in error
    assert not list(tmp_path.glob('e/*.data*'))
    assert run(f'--mode={mode}', '--model_dir=f', '--strict_bindings') == 0


def test_bindings_of_evaluation_are_no_slip_where_nothing_is_evaluated(run):
    arguments = '--model_dir=d', '--gin_param=Experiment.strict_bindings = True'
    assert run('--mode=train', *arguments, '--gin_param=valid/main_config.input_fn.mode = 1') == 0


def test_strictness_is_no_matter_of_other_modes(run, capsys):
    assert run('--mode=evaluate', '--model_dir=d', '--strict_bindings') == 2
    assert '`--strict_bindings` [True] is for `--mode=train_and_evaluate` and' in capsys.readouterr().err


def test_values_that_the_configuration_would_drop_are_named(run, caplog, monkeypatch):
    @gin.configurable('held', module='main_config')
    def held(value=None):
        return value

    monkeypatch.setattr(config, 'clear', lambda: gin.bind_parameter('main_config.held.value', lambda: 1))
    assert run('--model_dir=d') == 0
    assert (
        "gin can't write the values of these bindings, so that `config.gin` only names them, and a run from "
        'it is another: `main_config.held.value`. Make them in a configurable, and bind that.'
    ) in caplog.messages


def test_the_operative_configuration_is_written_after_the_graph_was_built_and_loads_again(run, tmp_path):
    assert run('--model_dir=d') == 0
    text = (tmp_path / 'd/operative_config.gin').read_text()
    assert 'model_fn.rate = 0.1\n' in text
    config.clear()
    config.load([str(tmp_path / 'd/operative_config.gin')])
    experiment = config.build('Experiment', model_dir='e')
    assert experiment.train_and_evaluate().exit_code == 0
    assert (tmp_path / 'e/operative_config.gin').read_text() == text
