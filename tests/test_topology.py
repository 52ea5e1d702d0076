"""`TF_CONFIG`: roles, ids, masters and device filters, and what is malformed."""

import json

import pytest

from framework import errors, topology

CLUSTER = {
    'chief': ['c:1'],
    'ps': ['p0:1', 'p1:1'],
    'worker': ['w0:1', 'w1:1'],
}
LEGACY = {'master': ['m:1'], 'ps': ['p0:1'], 'worker': ['w0:1']}


def read(**settings):
    return topology.from_environment({'TF_CONFIG': json.dumps(settings)})


def of(task_type, index, cluster=CLUSTER, **others):
    return read(cluster=cluster, task={'type': task_type, 'index': index}, **others)


@pytest.mark.parametrize('text', ['', '   ', '{}'])
def test_a_process_without_tf_config_is_alone(text):
    found = topology.from_environment({'TF_CONFIG': text})
    assert (found.task_type, found.task_id, found.global_id, found.is_chief) == ('worker', 0, 0, True)
    assert (found.master, found.evaluation_master) == ('', '')
    assert (found.num_ps_replicas, found.num_worker_replicas) == (0, 1)
    assert found.cluster_spec.as_dict() == {}
    assert found.device_filters is None


@pytest.mark.parametrize(
    'task, master, is_chief, global_id, filters',
    [
        (('chief', 0), 'grpc://c:1', True, 0, ['/job:ps', '/job:chief']),
        (('worker', 0), 'grpc://w0:1', False, 1, ['/job:ps', '/job:worker/task:0']),
        (('worker', 1), 'grpc://w1:1', False, 2, ['/job:ps', '/job:worker/task:1']),
        (('ps', 0), 'grpc://p0:1', False, 3, ['/job:ps', '/job:worker', '/job:chief', '/job:master']),
        (('ps', 1), 'grpc://p1:1', False, 4, ['/job:ps', '/job:worker', '/job:chief', '/job:master']),
    ],
)
def test_each_task_of_a_cluster_knows_its_place(task, master, is_chief, global_id, filters):
    found = of(*task)
    assert (found.task_type, found.task_id) == task
    assert (found.master, found.is_chief, found.global_id, found.device_filters) == (
        master,
        is_chief,
        global_id,
        filters,
    )
    assert (found.num_ps_replicas, found.num_worker_replicas) == (2, 3)
    assert found.cluster_spec.as_dict() == CLUSTER


def test_a_master_is_the_chief_of_a_legacy_cluster():
    found = of('master', 0, LEGACY)
    assert (found.is_chief, found.master, found.global_id, found.num_worker_replicas) == (True, 'grpc://m:1', 0, 2)
    assert found.device_filters == ['/job:ps', '/job:master']
    assert of('worker', 0, LEGACY).global_id == 1


def test_the_evaluator_is_outside_of_the_cluster():
    found = of('evaluator', 0, eval_session_master='grpc://e:1')
    assert found.cluster_spec.as_dict() == {}
    assert (found.master, found.evaluation_master) == ('', 'grpc://e:1')
    assert (found.is_chief, found.global_id, found.num_ps_replicas, found.num_worker_replicas) == (False, None, 0, 0)
    assert found.device_filters is None


def test_pain_105_an_evaluator_in_the_cluster_is_left_out_with_a_warning(caplog):
    found = of('chief', 0, {**CLUSTER, 'evaluator': ['e:1']})
    assert found.cluster_spec.as_dict() == CLUSTER
    assert 'The evaluator is no part of the training cluster: left out of "cluster" in TF_CONFIG' in caplog.text


def test_a_cluster_of_one_needs_no_server():
    found = of('chief', 0, {'chief': ['c:1']})
    assert (found.master, found.is_chief, found.num_worker_replicas) == ('', True, 1)


def test_the_masters_and_the_rest_that_a_platform_sets_hold():
    found = of('chief', 0, session_master='grpc://s:1', model_dir='/runs/a', service={'port': 1})
    assert (found.master, found.evaluation_master) == ('grpc://s:1', '')
    assert (found.model_dir, found.service) == ('/runs/a', {'port': 1})
    alone = read(session_master='grpc://s:1', eval_session_master='grpc://e:1')
    assert (alone.master, alone.evaluation_master) == ('grpc://s:1', 'grpc://e:1')


@pytest.mark.parametrize(
    'settings, text',
    [
        ({'cluster': {'worker': ['w:1']}}, 'If "cluster" is set in TF_CONFIG, it must have one "chief" node.'),
        ({'cluster': {'chief': ['a:1', 'b:1']}}, "must have only one \"chief\" node. Given ['a:1', 'b:1']."),
        ({'cluster': CLUSTER}, 'If "cluster" is set in TF_CONFIG, task type must be set.'),
        ({'cluster': CLUSTER, 'task': {'type': 'ps'}}, 'If "cluster" is set in TF_CONFIG, task index must be set.'),
        ({'cluster': CLUSTER, 'task': {'type': 'ps', 'index': -1}}, 'Task index must be non-negative number.'),
        ({'cluster': CLUSTER, 'task': {'type': 'ps', 'index': 'x'}}, 'Task index in TF_CONFIG must be an integer.'),
        ({'cluster': CLUSTER, 'task': {'type': 'ps', 'index': 2}}, '2 is not a valid task_id for task_type ps in the'),
        ({'cluster': CLUSTER, 'task': {'type': 'tpu', 'index': 0}}, 'tpu is not a valid task_type in the cluster_spec'),
        (
            {'cluster': {**LEGACY, 'chief': ['c:1']}, 'task': {'type': 'chief', 'index': 0}},
            'If `master` node exists in `cluster`, job `chief` is not supported.',
        ),
        (
            {'cluster': LEGACY, 'task': {'type': 'evaluator', 'index': 0}},
            'If `master` node exists in `cluster`, task_type `evaluator` is not supported',
        ),
        ({'task': {'type': 'chief'}}, 'If "cluster" is not set in TF_CONFIG, task type must be WORKER.'),
        ({'task': {'index': 1}}, 'If "cluster" is not set in TF_CONFIG, task index must be 0.'),
        ({'service': 'no'}, 'If "service" is set in TF_CONFIG, it must be a dict. Given [\'no\'].'),
        ({'model_dir': ''}, 'model_dir in TF_CONFIG should be non-empty.'),
        ({'cluster': ['c:1']}, '"cluster" in TF_CONFIG [[\'c:1\']] must be a dict'),
        ({'task': 'chief'}, '"task" in TF_CONFIG [\'chief\'] must be a dict'),
    ],
)
def test_what_is_malformed_is_named(settings, text):
    with pytest.raises(errors.ConfigurationError) as raised:
        read(**settings)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    'text, message',
    [
        ('{"cluster": ', 'The environment variable TF_CONFIG [{"cluster": ] is not JSON: Expecting value'),
        ('[1]', 'The environment variable TF_CONFIG [[1]] must be a JSON object'),
    ],
)
def test_what_is_no_json_object_is_shown(text, message):
    with pytest.raises(errors.ConfigurationError) as raised:
        topology.from_environment({'TF_CONFIG': text})
    assert message in str(raised.value)
