"""The settings of a warm start."""

import dataclasses
import pathlib

import gin
import pytest
from tensorflow.compat import v1

from framework import config, errors
from framework.warm_start import VocabInfo, WarmStartSettings, as_settings


@gin.configurable(module='warm_start_test')
def given(value=None):
    return value


def test_positions_are_those_of_tf_estimator():
    info = VocabInfo('new.txt', 3, 1, 'old.txt')
    settings = WarmStartSettings('runs/a', ['w'], {'w': info}, {'w': 'v'})
    assert settings.ckpt_to_initialize_from == 'runs/a'
    assert settings.vars_to_warm_start == ['w']
    assert settings.var_name_to_vocab_info == {'w': info}
    assert settings.var_name_to_prev_var_name == {'w': 'v'}
    assert settings.strict


def test_by_default_all_trainable_variables_are_meant_under_their_names():
    settings = WarmStartSettings('runs/a')
    assert settings.vars_to_warm_start == '.*'
    assert settings.var_name_to_vocab_info == settings.var_name_to_prev_var_name == {}


def test_vocab_info_is_the_one_of_tensorflow():
    assert VocabInfo is v1.train.VocabInfo


def test_what_the_caller_changes_later_changes_no_settings():
    previous = {'w': 'v'}
    settings = WarmStartSettings('runs/a', '.*', None, previous)
    previous['x'] = 'y'
    assert settings.var_name_to_prev_var_name == {'w': 'v'}


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        WarmStartSettings('runs/a').strict = False


def test_a_tuple_of_expressions_is_a_list_of_them():
    assert WarmStartSettings('runs/a', ('w', 'b')).vars_to_warm_start == ['w', 'b']


def test_none_means_no_warm_start():
    assert as_settings(None) is None


@pytest.mark.parametrize('path', ['runs/a', pathlib.Path('runs/a')])
def test_a_path_means_all_trainable_variables_of_it(path):
    assert as_settings(path) == WarmStartSettings('runs/a')


def test_settings_stay_as_they_are():
    settings = WarmStartSettings('runs/a', 'w')
    assert as_settings(settings) is settings


def test_gin_binds_settings_and_vocabularies():
    config.load(
        [],
        [
            'warm_start_test.given.value = @WarmStartSettings()',
            "WarmStartSettings.ckpt_to_initialize_from = 'runs/a'",
            'WarmStartSettings.vars_to_warm_start = None',
            "WarmStartSettings.var_name_to_vocab_info = {'w': @VocabInfo()}",
            "VocabInfo.new_vocab = 'new.txt'",
            'VocabInfo.new_vocab_size = 3',
            'VocabInfo.num_oov_buckets = 1',
            "VocabInfo.old_vocab = 'old.txt'",
        ],
    )
    assert given() == WarmStartSettings('runs/a', None, {'w': VocabInfo('new.txt', 3, 1, 'old.txt')})


def _refused(match, *args, kind=errors.ConfigurationTypeError, **kwargs):
    with pytest.raises(kind, match=match):
        WarmStartSettings(*args, **kwargs)


@pytest.mark.parametrize('value', [3, b'runs/a', {'a': 1}, WarmStartSettings])
def test_anything_else_is_no_warm_start(value):
    with pytest.raises(errors.ConfigurationTypeError, match=r'^`warm_start_from` \[.*\] must be a path'):
        as_settings(value)


@pytest.mark.parametrize('value', [None, 3, b'runs/a'])
def test_a_checkpoint_must_be_a_path(value):
    _refused(r'^`WarmStartSettings.ckpt_to_initialize_from` \[.*\] must be a path: ', value)


def test_an_empty_path_is_no_checkpoint():
    _refused(r"ckpt_to_initialize_from` \[''\] must name a checkpoint", '', kind=errors.ConfigurationError)
    with pytest.raises(errors.ConfigurationError, match=r"^`warm_start_from` \[''\] must name a checkpoint"):
        as_settings('')


@pytest.mark.parametrize('value', [3, [3], {'w': 'v'}])
def test_variables_are_named_by_expressions(value):
    _refused(r'^`WarmStartSettings.vars_to_warm_start` \[.*\] must be a regular expression, a list', 'a', value)


@pytest.mark.parametrize('value', ['', [], ['w', '']])
def test_an_expression_must_not_be_empty(value):
    _refused(r"must not be empty. Write '.\*' for all", 'a', value, kind=errors.ConfigurationError)


def test_a_broken_expression_is_named():
    _refused(
        r'`WarmStartSettings.vars_to_warm_start` \[w\(\] is no regular expression: missing \)',
        'a',
        ['w', 'w('],
        kind=errors.ConfigurationError,
    )


@pytest.mark.parametrize('value', [['w'], {'w': 'new.txt'}, {1: VocabInfo('n', 1, 0, 'o')}])
def test_vocabularies_are_given_by_name(value):
    _refused(r"var_name_to_vocab_info` \[.*\] must be a dict from variables' names to VocabInfo", 'a', None, value)


@pytest.mark.parametrize('value', [['w'], {'w': 1}, {1: 'w'}])
def test_previous_names_are_given_by_name(value):
    _refused(r"var_name_to_prev_var_name` \[.*\] must be a dict from variables' names to names", 'a', '.*', None, value)


def test_what_fills_new_entries_must_be_an_initializer():
    info = VocabInfo('new.txt', 3, 1, 'old.txt', backup_initializer=0.5)
    _refused(r'^`VocabInfo.backup_initializer` of `w` \[0.5\] must be an initializer', 'a', None, {'w': info})


def test_strict_is_a_switch():
    _refused(r'`WarmStartSettings.strict` \[1\] must be True or False', 'a', strict=1)
