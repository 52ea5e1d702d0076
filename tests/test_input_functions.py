import functools

import gin
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework.errors import ConfigurationError
from framework.input_functions import call_input_fn, check_input_fn, split_element
from framework.spec import ModeKeys
from framework.testing import drain

TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
EAGER_DATASET = tf.data.Dataset.range(3)
EAGER_TENSOR = tf.constant(1)


# check_input_fn.


def needs_split(split):
    return tf.data.Dataset.range(3)


@gin.configurable('inputs_test_input', module='tests')
def gin_input(split, mode):
    if split == 'raise':
        raise TypeError('mine')
    return tf.data.Dataset.range(split)


@pytest.mark.parametrize(
    'input_fn',
    [
        lambda: None,
        lambda mode, params, config, input_context: None,
        lambda split='train', **more: None,
        functools.partial(needs_split, 'train'),
        functools.partial(needs_split, split='train'),
        gin_input,
        functools.partial(gin_input),
    ],
)
def test_an_input_fn_that_can_be_called_is_accepted(input_fn):
    check_input_fn(input_fn, name='Experiment.train_input_fn')


@pytest.mark.parametrize('input_fn', [None, 'digits.input_fn', EAGER_DATASET])
def test_an_input_fn_that_is_no_callable_is_a_type_error(input_fn):
    with pytest.raises(TypeError, match=r'^`EvalSet.input_fn` must be callable, given: \['):
        check_input_fn(input_fn, name='EvalSet.input_fn')


@pytest.mark.parametrize(
    ('input_fn', 'message'),
    [
        (needs_split, r"needs_split\] has following not expected args: \['split'\]"),
        (lambda modes: None, r"\['modes'\].*Did you mean `mode`"),
        (lambda features, labels: None, r"\['features', 'labels'\].*Valid names: `config`"),
    ],
)
def test_a_required_argument_that_nothing_supplies_is_refused(input_fn, message):
    with pytest.raises(ConfigurationError, match='^`Experiment.train_input_fn` .*' + message):
        check_input_fn(input_fn, name='Experiment.train_input_fn')


# call_input_fn.


def call(input_fn, **changes):
    return call_input_fn(input_fn, **{'stream': 'valid', 'mode': EVAL, 'params': {'n': 2}, 'config': 'c', **changes})


def recorder(signature):
    """An input_fn `def input_fn(<signature>)` and the dict in which it records its arguments."""
    scope = {'seen': {}, 'tf': tf}
    exec(f'def input_fn({signature}):\n  seen.update(locals())\n  return tf.data.Dataset.range(3)', scope)
    return scope['input_fn'], scope['seen']


@pytest.mark.parametrize(
    ('signature', 'passed'),
    [
        ('', {}),
        ('mode, params, config', {'mode': EVAL, 'params': {'n': 2}, 'config': 'c'}),
        ('*, config, size=3', {'config': 'c', 'size': 3}),
        ('input_context=None, **more', {'input_context': None, 'more': {}}),
    ],
)
def test_an_input_fn_gets_by_keyword_what_it_names(signature, passed):
    input_fn, seen = recorder(signature)
    call(input_fn)
    assert seen == passed


def test_a_required_input_context_is_that_of_a_single_process():
    input_fn, seen = recorder('input_context')
    call(input_fn)
    assert (seen['input_context'].num_input_pipelines, seen['input_context'].input_pipeline_id) == (1, 0)


def test_a_partial_keeps_what_it_gives():
    input_fn, seen = recorder('mode, params')
    call(functools.partial(input_fn, mode='mine'))
    assert seen == {'mode': 'mine', 'params': {'n': 2}}


def test_params_are_copied_for_each_call():
    params = {'files': ['a']}

    def input_fn(params):
        params['files'].append('b')
        return tf.data.Dataset.range(len(params['files']))

    for _ in range(2):
        assert drain(call(input_fn, params=params)) == [0, 1]
    assert params == {'files': ['a']}


@pytest.mark.parametrize(('signature', 'passed'), [('params', {}), ('params=7', 7)])
def test_without_params_the_default_holds_else_an_empty_dict(signature, passed):
    input_fn, seen = recorder(signature)
    call(input_fn, params=None)
    assert seen == {'params': passed}


def test_an_input_fn_is_called_on_the_cpu():
    devices = []

    def input_fn():
        devices.append(tf.constant(1).device)
        return tf.data.Dataset.range(3)

    with tf.device('/gpu:0'):
        call(input_fn)
    assert devices == ['/device:CPU:0']


@pytest.mark.parametrize('make', [lambda: tf.data.Dataset.range(3), lambda: v1.data.Dataset.range(3)])
def test_datasets_of_both_versions_are_accepted(make):
    assert drain(call(make)) == [0, 1, 2]


class Loader:
    def __getitem__(self, index):
        return index


@pytest.mark.parametrize(
    ('make', 'given', 'remedy'),
    [
        (lambda: None, 'NoneType', 'return dataset'),
        (lambda: (np.ones(3), np.ones(3)), r'tuple of \(ndarray, ndarray\)', r'from_tensors\(\.\.\.\)'),
        (lambda: {'x': np.ones(3), 'y': tf.constant(1)}, 'dict', r'from_tensors\(\.\.\.\)'),
        (lambda: np.ones(3), 'ndarray', 'from_arrays'),
        (lambda: (i for i in range(3)), 'generator', r'from_generator\(\.\.\.\)'),
        (Loader, 'Loader', r'from_generator\(\.\.\.\)'),
        (lambda: needs_split, 'function', 'It returned a function'),
        (object, 'object', 'Build one'),
    ],
)
def test_a_result_that_is_no_dataset_is_refused_with_its_type_and_a_remedy(make, given, remedy):
    with pytest.raises(TypeError, match=rf'^The input_fn of stream `valid` .*, given: \[.*{given}.*\]\. .*{remedy}'):
        call(make)


@pytest.mark.parametrize('make', [list, tuple, lambda pair: dict(zip('xy', pair, strict=True))])
def test_tensors_of_the_graph_are_accepted(make):
    result = make([tf.constant(1), tf.constant(2)])
    assert call(lambda: result) is result


def test_an_eager_tensor_is_refused():
    with pytest.raises(ConfigurationError, match=r'returned a tuple of .* Make it inside of input_fn'):
        call(lambda: (EAGER_TENSOR, EAGER_TENSOR))


def test_a_dataset_made_outside_of_the_graph_is_refused():
    with tf.Graph().as_default():
        foreign = tf.data.Dataset.range(3)
    for dataset in (foreign, EAGER_DATASET):
        with pytest.raises(ConfigurationError, match=r'stream `valid` .* Make it inside of input_fn'):
            call(lambda dataset=dataset: dataset)


def test_gin_supplies_what_it_binds():
    gin.bind_parameter('tests.inputs_test_input.split', 2)
    assert drain(call(gin_input)) == [0, 1]


def test_what_gin_does_not_supply_is_named_with_the_stream():
    with pytest.raises(ConfigurationError, match=r'^`input_fn of valid` .* requires `split`, and neither gin'):
        call(gin_input)


def test_a_type_error_of_the_users_own_body_passes_unchanged():
    gin.bind_parameter('tests.inputs_test_input.split', 'raise')
    with pytest.raises(TypeError, match=r'^mine') as error:
        call(gin_input)
    assert not isinstance(error.value, ConfigurationError)


# split_element.


@pytest.mark.parametrize(
    ('element', 'split'),
    [
        (('x', 'y'), ('x', 'y')),
        (['x', 'y'], ('x', 'y')),
        (({'a': 1}, None), ({'a': 1}, None)),
        ('x', ('x', None)),
        ({'a': 1, 'b': 2}, ({'a': 1, 'b': 2}, None)),
    ],
)
def test_an_element_splits_into_features_and_labels(element, split):
    assert split_element(element, stream='train') == split


@pytest.mark.parametrize('element', [('x',), ('x', 'y', 'w'), [], ['x'] * 4])
def test_a_tuple_of_another_length_is_refused(element):
    message = rf'^input_fn should return \(features, labels\) as a len 2 tuple\..*`train`.*\[{len(element)}\].*weights'
    with pytest.raises(ConfigurationError, match=message):
        split_element(element, stream='train')
