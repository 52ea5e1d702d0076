"""Every name of `tf.compat.v1.estimator` of TensorFlow 2.15 is here, or raises a sentence."""

import functools
import importlib
import json
import pathlib

import pytest
from tensorflow.compat import v1

from framework import estimator

RECORDED = pathlib.Path(__file__).parent / 'recorded'
NAMES = json.loads((RECORDED / 'names.json').read_text())
CANNED_OR_TPU = 'is not here yet: (canned estimators and heads|`TPUEstimator` on CPU and GPU) comes? later'


def resolve(name):
    return functools.reduce(getattr, name.split('.'), estimator)


@pytest.mark.parametrize('name', NAMES)
def test_every_name_of_2_15_is_here_or_raises_a_sentence(name):
    try:
        assert callable(resolve(name)) or isinstance(resolve(name), type)
    except AttributeError as error:
        with pytest.raises(AttributeError, match=CANNED_OR_TPU):
            raise error


def test_no_name_of_the_core_is_refused():
    refused = []
    for name in NAMES:
        try:
            resolve(name)
        except AttributeError:
            refused.append(name)
    assert all(
        name.startswith('tpu.') or name.rpartition('.')[2] in estimator.unbuilt.CANNED
        for name in refused
        if not name.startswith('experimental.')
    )
    assert {name for name in refused if name.startswith('experimental.')} == {
        'experimental.KMeans',
        'experimental.LinearSDCA',
        'experimental.dnn_logit_fn_builder',
        'experimental.linear_logit_fn_builder',
    }


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(
        AttributeError,
        match=r"module 'framework.estimator' has no attribute 'Estimater'. Did you mean "
        r'`Estimator`\?',
    ):
        resolve('Estimater')


def test_hasattr_says_no_for_a_name_that_is_not_built():
    assert not hasattr(estimator, 'DNNClassifier')


def test_pain_125_the_names_of_hooks_are_those_of_the_session_layer():
    assert estimator.SessionRunHook is v1.train.SessionRunHook
    assert estimator.CheckpointSaverListener is v1.train.CheckpointSaverListener


def test_all_lists_what_is_there():
    module = importlib.import_module('framework.estimator')
    assert all(hasattr(module, name) for name in module.__all__)
