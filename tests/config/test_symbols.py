"""TensorFlow's symbols in gin, as `gin.tf` had them."""

import subprocess
import sys

import gin
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import config, errors


@gin.configurable(module='symbols_test')
def takes(value=None):
    return value


def value_of(*bindings):
    config.load([], bindings)
    return takes()


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('@tf.nn.relu', tf.nn.relu),
        ('@relu', tf.nn.relu),
        ('@nn.relu', tf.nn.relu),
        ('@tf.compat.v1.nn.relu', tf.nn.relu),
        ('@tf.math.sin', tf.math.sin),
        ('@tf.train.exponential_decay', v1.train.exponential_decay),
        ('@tf.losses.huber_loss', v1.losses.huber_loss),
        ('@tf.zeros_initializer', tf.zeros_initializer),
    ],
)
def test_a_function_of_tensorflow_is_known_by_its_name(text, expected):
    found = value_of(f'symbols_test.takes.value = {text}')
    assert getattr(found, '__wrapped__', found) is expected or issubclass(found, expected)


@pytest.mark.parametrize('name', ['tf.compat.v1.train.AdamOptimizer', 'tf.train.AdamOptimizer', 'AdamOptimizer'])
def test_an_optimizer_takes_its_bindings(name):
    made = value_of(f'symbols_test.takes.value = @slow/{name}()', f'slow/{name}.beta1 = 0.5')
    assert isinstance(made, v1.train.AdamOptimizer) and made._beta1 == 0.5


@pytest.mark.parametrize(
    ('text', 'expected'),
    [('%tf.float32', tf.float32), ('%float16', tf.float16), ('%tf.string', tf.string)],
)
def test_a_value_of_tensorflow_is_a_constant(text, expected):
    assert value_of(f'symbols_test.takes.value = {text}') is expected


def test_what_the_user_calls_by_a_name_of_tensorflow_is_the_users():
    assert value_of('float32 = 5', 'symbols_test.takes.value = %float32') == 5


def test_two_paths_to_one_function_stand_side_by_side():
    made = value_of('symbols_test.takes.value = [@tf.nn.relu, @tf.compat.v1.nn.relu, @relu]', 'tf.nn.relu.name = "r"')
    assert [f([-1.0]).op.name for f in made] == ['r', 'Relu', 'r_1']


@pytest.mark.parametrize(
    ('text', 'sentence'),
    [
        ('@tf.nn.rellu', 'TensorFlow has no `@tf.nn.rellu`. Did you mean `@tf.nn.relu`?'),
        ('@tf.nm.relu', 'TensorFlow has no `@tf.nm.relu`. Did you mean `@tf.norm`?'),
        ('@tf.train.Adamoptimizer()', 'Did you mean `@tf.train.AdamOptimizer`?'),
        ('%tf.float23', 'TensorFlow has no `%tf.float23`. Did you mean `%tf.float32`?'),
        ('@tf.zzzzzzzzz', 'TensorFlow has no `@tf.zzzzzzzzz`. `tf` has nothing like `zzzzzzzzz`.'),
        ('@tf.float32', '`@tf.float32` is a value, no function. Write `%tf.float32`.'),
        ('@float32', '`@float32` is a value, no function. Write `%tf.float32`.'),
        ('%tf.nn.relu', '`%tf.nn.relu` is a function or class, no value. Write `@tf.nn.relu`.'),
        ('@tf.nn', 'TensorFlow has no `@tf.nn`.'),
    ],
)
def test_a_slip_in_a_name_of_tensorflow_is_a_sentence(text, sentence):
    with pytest.raises(errors.ConfigurationError) as caught:
        value_of(f'symbols_test.takes.value = {text}')
    assert str(caught.value).startswith(f'In the binding `symbols_test.takes.value = {text}`: ')
    assert sentence in str(caught.value)


def test_an_unknown_parameter_of_a_symbol_names_the_nearest():
    with pytest.raises(errors.ConfigurationError, match=r'has no parameter `betas1`. Did you mean `beta1`'):
        value_of('tf.train.AdamOptimizer.betas1 = 0.5')


TEXT = (
    'symbols_test.takes.value = [@relu, @tf.math.sin, @slow/AdamOptimizer(), %float32, @nn.elu]',
    'AdamOptimizer.beta1 = 0.5',
    'tf.math.sin.name = "wave"',
)


def test_the_text_has_whole_names_and_loads_again():
    config.load([], TEXT)
    takes()
    texts = config.config_text(), config.operative_text()
    for name in ('@tf.nn.relu', '@tf.math.sin', '@slow/tf.train.AdamOptimizer()', '%tf.float32', 'tf.math.sin.name ='):
        assert name in texts[0]
    for text in texts:
        config.clear()
        config.load([], [text])
        takes()
        assert text in (config.config_text(), config.operative_text())


def test_the_text_loads_in_a_process_that_knows_no_symbol_yet(tmp_path):
    config.load([], TEXT)
    program = """
import sys, gin
from framework import config

@gin.configurable(module='symbols_test')
def takes(value=None):
    return value

config.load([sys.argv[1]])
assert config.config_text() == open(sys.argv[1]).read()
"""
    file = tmp_path / 'config.gin'
    file.write_text(config.config_text())
    subprocess.run([sys.executable, '-c', program, str(file)], check=True, timeout=60)


def test_under_dynamic_registration_tensorflow_is_imported(tmp_path):
    file = tmp_path / 'a.gin'
    file.write_text(
        'from __gin__ import dynamic_registration\nimport tensorflow as tf\ntf.nn.relu.name = "r"\nx = @tf.nn.relu\n'
    )
    config.load([str(file)])
    assert 'import tensorflow as tf' in config.config_text()


def test_a_singleton_is_one_for_each_graph_and_scope():
    config.load(
        [],
        [
            'symbols_test.takes.value = @one/singleton_per_graph()',
            'singleton_per_graph.constructor = @tf.train.AdamOptimizer',
            'other/symbols_test.takes.value = @two/singleton_per_graph()',
        ],
    )
    first = takes()
    assert takes() is first
    with gin.config_scope('other'):
        assert takes() is not first
    with tf.Graph().as_default():
        assert takes() is not first
    assert takes() is first
