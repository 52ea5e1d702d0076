"""`RunConfig`: the constructor, the fields and `replace` of `tf.estimator.RunConfig`."""

import json
import pathlib

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.estimator import RunConfig

DEFAULTS = {
    'model_dir': None,
    'tf_random_seed': None,
    'save_summary_steps': 100,
    'save_checkpoints_steps': None,
    'save_checkpoints_secs': 600,
    'session_config': None,
    'keep_checkpoint_max': 5,
    'keep_checkpoint_every_n_hours': 10000,
    'log_step_count_steps': 100,
    'train_distribute': None,
    'device_fn': None,
    'protocol': None,
    'eval_distribute': None,
    'experimental_distribute': None,
    'experimental_max_worker_delay_secs': None,
    'session_creation_timeout_secs': 7200,
    'checkpoint_save_graph_def': True,
    'service': None,
    'task_type': 'worker',
    'task_id': 0,
    'global_id_in_cluster': 0,
    'master': '',
    'evaluation_master': '',
    'is_chief': True,
    'num_ps_replicas': 0,
    'num_worker_replicas': 1,
}


def test_the_defaults_are_those_of_tf_estimator():
    config = RunConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    assert config.cluster_spec == tf.train.ClusterSpec({})


def test_the_fields_come_in_the_order_of_tf_estimator():
    assert RunConfig('/runs/a', 7, 10).save_summary_steps == 10
    assert RunConfig('/runs/a', 7, 10).tf_random_seed == 7


@pytest.mark.parametrize(
    'given, expected',
    [
        ({'save_checkpoints_steps': 5}, (5, None)),
        ({'save_checkpoints_secs': 5}, (None, 5)),
        ({'save_checkpoints_steps': None}, (None, None)),
        ({'save_checkpoints_steps': None, 'save_checkpoints_secs': None}, (None, None)),
        ({}, (None, 600)),
    ],
)
def test_one_checkpoint_cadence_holds(given, expected):
    config = RunConfig(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == expected
    assert config.sets_saving == bool(given)


@pytest.mark.parametrize('clear', ['save_checkpoints_steps', 'save_checkpoints_secs'])
def test_replacing_one_checkpoint_cadence_clears_the_other(clear):
    (other,) = {'save_checkpoints_steps', 'save_checkpoints_secs'} - {clear}
    config = RunConfig(**{clear: 5}).replace(**{other: 7})
    assert (getattr(config, clear), getattr(config, other)) == (None, 7)


def test_replace_returns_a_copy():
    config = RunConfig(tf_random_seed=1)
    assert config.replace(tf_random_seed=2).tf_random_seed == 2
    assert config.tf_random_seed == 1


@pytest.mark.parametrize(
    'changes, text',
    [
        ({'save_summary_step': 1}, 'Replacing save_summary_step is not supported. Allowed properties are'),
        ({'master': 'x'}, 'Replacing master is not supported. Allowed properties are'),
        ({'save_checkpoints_steps': 1, 'save_checkpoints_secs': 1}, '`save_checkpoints_steps` and'),
    ],
)
def test_replace_refuses(changes, text):
    with pytest.raises(ValueError, match=text):
        RunConfig().replace(**changes)


@pytest.mark.parametrize(
    'given, text',
    [
        ({'model_dir': ''}, 'model_dir should be non-empty'),
        ({'save_summary_steps': -1}, 'save_summary_steps should be >= 0'),
        ({'save_checkpoints_steps': -1}, 'save_checkpoints_steps should be >= 0'),
        ({'save_checkpoints_secs': -1}, 'save_checkpoints_secs should be >= 0'),
        ({'save_checkpoints_steps': 1, 'save_checkpoints_secs': 1}, 'cannot be both set'),
        ({'session_config': {}}, 'session_config must be instance of ConfigProto'),
        ({'keep_checkpoint_max': -1}, 'keep_checkpoint_max should be >= 0'),
        ({'keep_checkpoint_every_n_hours': 0}, 'keep_checkpoint_every_n_hours should be > 0'),
        ({'log_step_count_steps': 0}, 'log_step_count_steps should be > 0'),
        ({'tf_random_seed': 1.0}, 'tf_random_seed must be integer'),
        ({'experimental_max_worker_delay_secs': '5'}, 'experimental_max_worker_delay_secs must be an integer if'),
        ({'session_creation_timeout_secs': 0}, 'session_creation_timeout_secs should be > 0'),
        ({'device_fn': lambda x: '/cpu:0'}, 'device_fn must be callable with exactly one argument "op"'),
        ({'protocol': 'http'}, r'protocol should be grpc or grpc\+verbs'),
        ({'reproducible': 'best'}, r"`RunConfig.reproducible` \['best'\] is no such choice"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused(given, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        RunConfig(**given)


def test_a_device_fn_takes_op():
    def device_fn(op):
        return '/cpu:0'

    assert RunConfig(device_fn=device_fn).device_fn is device_fn


def test_a_path_is_taken_as_a_string():
    assert RunConfig(pathlib.Path('/runs/a')).model_dir == '/runs/a'


@pytest.fixture
def tf_config(monkeypatch):
    return lambda **settings: monkeypatch.setenv('TF_CONFIG', json.dumps(settings))


def test_tf_config_is_read(tf_config):
    cluster = {'chief': ['c:1'], 'ps': ['p:1'], 'worker': ['w:1']}
    tf_config(cluster=cluster, task={'type': 'worker', 'index': 0})
    config = RunConfig()
    assert (config.task_type, config.is_chief, config.master) == ('worker', False, 'grpc://w:1')
    assert (config.num_worker_replicas, config.num_ps_replicas, config.global_id_in_cluster) == (2, 1, 1)
    assert config.cluster_spec == tf.train.ClusterSpec(cluster)
    assert list(config.session_config.device_filters) == ['/job:ps', '/job:worker/task:0']
    assert config.session_config.allow_soft_placement


def test_a_session_config_of_the_user_keeps_its_filters(tf_config):
    tf_config(cluster={'chief': ['c:1'], 'ps': ['p:1']}, task={'type': 'chief', 'index': 0})
    assert list(RunConfig(session_config=v1.ConfigProto()).session_config.device_filters) == []


def test_the_directory_of_the_platform_holds_and_must_agree(tf_config):
    tf_config(model_dir='/runs/a')
    assert RunConfig().model_dir == RunConfig('/runs/a').model_dir == '/runs/a'
    with pytest.raises(ValueError, match='must have the same value as the model_dir in TF_CONFIG'):
        RunConfig('/runs/b')


def test_a_subclass_of_old_code_works():
    class Mine(RunConfig):
        def __init__(self, extra, **kwargs):
            super().__init__(**kwargs)
            self._extra = extra

    config = Mine(3, save_summary_steps=5).replace(save_summary_steps=6)
    assert (type(config), config._extra, config._save_summary_steps) == (Mine, 3, 6)
