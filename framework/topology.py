"""Who this process is, and who else is there: what the environment variable `TF_CONFIG` says of a cluster.

`TF_CONFIG` is a JSON object: `cluster` (job to addresses), `task` (`type`, `index`), and where a platform sets them
`model_dir`, `session_master`, `eval_session_master`, `service`. Without `cluster` a process is alone.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from framework import errors

CHIEF, MASTER, WORKER, PS, EVALUATOR = 'chief', 'master', 'worker', 'ps', 'evaluator'
_VARIABLE = 'TF_CONFIG'
_GRPC = 'grpc://'
_IN_A_CLUSTER = f'If "cluster" is set in {_VARIABLE}'


@dataclasses.dataclass(frozen=True)
class Topology:
    """The place of a process in its cluster.

    Attributes:
        cluster: Job to the addresses of its tasks; empty for a process that is alone, and for an evaluator.
        task_type: `chief`, `master`, `worker`, `ps` or `evaluator`; `worker` for a process that is alone.
        task_id: Its index among those of its type.
        master: What training sessions connect to, empty for this process.
        evaluation_master: The same for evaluation.
        model_dir: The run directory that the platform sets, None where it sets none.
        service: What the platform says of itself, None where it says nothing.
    """

    cluster: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    task_type: str = WORKER
    task_id: int = 0
    master: str = ''
    evaluation_master: str = ''
    model_dir: str | None = None
    service: Mapping[str, Any] | None = None

    @property
    def cluster_spec(self) -> tf.train.ClusterSpec:
        """The cluster as TensorFlow takes it."""
        return tf.train.ClusterSpec({job: list(addresses) for job, addresses in self.cluster.items()})

    @property
    def is_chief(self) -> bool:
        """Whether it saves, and initialises what the others wait for."""
        if not self.cluster:
            return self.task_type != EVALUATOR
        return self.task_type in (CHIEF, MASTER)

    @property
    def num_ps_replicas(self) -> int:
        """The parameter servers."""
        return len(self.cluster.get(PS, ()))

    @property
    def num_worker_replicas(self) -> int:
        """The processes that train: workers, and the chief or master."""
        if not self.cluster:
            return 0 if self.task_type == EVALUATOR else 1
        return sum(len(self.cluster.get(job, ())) for job in (WORKER, CHIEF, MASTER))

    @property
    def global_id(self) -> int | None:
        """Its index in the whole cluster: the chief's is 0, then the jobs by name, then the parameter servers."""
        if not self.cluster:
            return None if self.task_type == EVALUATOR else 0
        order = sorted(self.cluster, key=lambda job: (job == PS, job not in (CHIEF, MASTER), job))
        before = order[: order.index(self.task_type)]
        return sum(len(self.cluster[job]) for job in before) + self.task_id

    @property
    def device_filters(self) -> list[str] | None:
        """The devices that its sessions look at: workers know of parameter servers, and not of one another.

        None for all.
        """
        filters = {
            MASTER: ['/job:ps', '/job:master'],
            CHIEF: ['/job:ps', '/job:chief'],
            WORKER: ['/job:ps', f'/job:worker/task:{self.task_id}'],
            PS: ['/job:ps', '/job:worker', '/job:chief', '/job:master'],
        }
        return filters.get(self.task_type) if self.cluster else None


def from_environment(environment: Mapping[str, str] | None = None) -> Topology:
    """Reads `TF_CONFIG`.

    Args:
        environment: The environment, None for that of this process.

    Raises:
        ConfigurationError: If it is no JSON object, or contradicts itself.
    """
    settings = _settings(dict(os.environ if environment is None else environment).get(_VARIABLE, ''))
    service = settings.get('service')
    if service is not None and not isinstance(service, dict):
        raise errors.ConfigurationTypeError(
            f'If "service" is set in {_VARIABLE}, it must be a dict. Given [{service!r}].'
        )
    if settings.get('model_dir') == '':
        raise errors.ConfigurationError(
            f'model_dir in {_VARIABLE} should be non-empty. Name a directory, or leave it out.'
        )
    common = {'model_dir': settings.get('model_dir'), 'service': service}
    cluster = _cluster(settings.get('cluster') or {})
    task = settings.get('task') or {}
    if not isinstance(task, dict):
        raise errors.ConfigurationTypeError(f'"task" in {_VARIABLE} [{task!r}] must be a dict of "type" and "index".')
    if not cluster:
        return _alone(task, settings, common)
    return _in_cluster(cluster, task, settings, common)


def _settings(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise errors.ConfigurationError(
            f'The environment variable {_VARIABLE} [{text}] is not JSON: {error}. Mend it, or unset it.'
        ) from error
    if not isinstance(settings, dict):
        raise errors.ConfigurationTypeError(
            f'The environment variable {_VARIABLE} [{text}] must be a JSON object: '
            '{"cluster": {...}, "task": {"type": "worker", "index": 0}}.'
        )
    return settings


def _cluster(cluster: Any) -> dict[str, list[str]]:
    """Returns the jobs of the training cluster, in which there is no evaluator."""
    if not isinstance(cluster, dict):
        raise errors.ConfigurationTypeError(
            f'"cluster" in {_VARIABLE} [{cluster!r}] must be a dict of jobs to lists of addresses.'
        )
    jobs = tf.train.ClusterSpec(cluster).as_dict() if cluster else {}
    if EVALUATOR in jobs:
        # The others would wait for it for ever: it runs no server.
        logging.warning(
            'The evaluator is no part of the training cluster: left out of "cluster" in %s [%s].',
            _VARIABLE,
            jobs.pop(EVALUATOR),
        )
    return {job: _addresses(job, addresses) for job, addresses in jobs.items()}


def _addresses(job: str, addresses: Any) -> list[str]:
    if isinstance(addresses, dict):
        raise errors.ConfigurationTypeError(
            f'"{job}" in the "cluster" of {_VARIABLE} [{addresses!r}] must be a list of addresses, in the order of '
            'their task indices.'
        )
    return list(addresses)


def _alone(task: Mapping[str, Any], settings: Mapping[str, Any], common: Mapping[str, Any]) -> Topology:
    task_type, index = task.get('type', WORKER), _index(task.get('index', 0))
    if task_type != WORKER:
        raise errors.ConfigurationError(
            f'If "cluster" is not set in {_VARIABLE}, task type must be WORKER. Given [{task_type!r}].'
        )
    if index != 0:
        raise errors.ConfigurationError(
            f'If "cluster" is not set in {_VARIABLE}, task index must be 0. Given [{index}].'
        )
    return Topology(
        master=settings.get('session_master', ''),
        evaluation_master=settings.get('eval_session_master', ''),
        **common,
    )


def _in_cluster(
    cluster: Mapping[str, Sequence[str]],
    task: Mapping[str, Any],
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
) -> Topology:
    chief = MASTER if MASTER in cluster else CHIEF
    task_type, index = _checked_task(cluster, task, chief)
    if task_type == EVALUATOR:  # it looks at the checkpoints of a cluster that it is no part of
        return Topology({}, EVALUATOR, index, '', settings.get('eval_session_master', ''), **common)
    alone = sum(len(addresses) for addresses in cluster.values()) == 1
    address = '' if alone else f'{_GRPC}{cluster[task_type][index]}'
    return Topology(cluster, task_type, index, settings.get('session_master', address), **common)


def _checked_task(cluster: Mapping[str, Sequence[str]], task: Mapping[str, Any], chief: str) -> tuple[str, int]:
    """Returns the type and the index of a task in a cluster."""
    if chief == MASTER and CHIEF in cluster:
        raise errors.ConfigurationError(
            f'If `master` node exists in `cluster`, job `chief` is not supported. Given [{dict(cluster)}].'
        )
    if chief not in cluster:
        raise errors.ConfigurationError(f'{_IN_A_CLUSTER}, it must have one "{chief}" node. Given [{dict(cluster)}].')
    if len(cluster[chief]) > 1:
        raise errors.ConfigurationError(
            f'The "cluster" in {_VARIABLE} must have only one "{chief}" node. Given {list(cluster[chief])}.'
        )
    task_type, index = task.get('type'), task.get('index')
    if not task_type:
        raise errors.ConfigurationError(f'{_IN_A_CLUSTER}, task type must be set. Given [{dict(task)}].')
    if index is None:
        raise errors.ConfigurationError(f'{_IN_A_CLUSTER}, task index must be set. Given [{dict(task)}].')
    index = _index(index)
    if task_type == EVALUATOR and chief == MASTER:
        raise errors.ConfigurationError(
            'If `master` node exists in `cluster`, task_type `evaluator` is not supported: the master evaluates.'
        )
    if task_type != EVALUATOR:
        _check_member(cluster, task_type, index)
    return task_type, index


def _check_member(cluster: Mapping[str, Sequence[str]], task_type: Any, index: int) -> None:
    source = f'Note that these values may be coming from the {_VARIABLE} environment variable.'
    if task_type not in cluster:
        raise errors.ConfigurationError(
            f'{task_type} is not a valid task_type in the cluster_spec: [{dict(cluster)}]. {source}'
        )
    if index >= len(cluster[task_type]):
        raise errors.ConfigurationError(
            f'{index} is not a valid task_id for task_type {task_type} in the cluster_spec: [{dict(cluster)}]. {source}'
        )


def _index(value: Any) -> int:
    try:
        index = int(value)
    except (TypeError, ValueError) as error:
        raise errors.ConfigurationError(f'Task index in {_VARIABLE} must be an integer. Given [{value!r}].') from error
    if index < 0:
        raise errors.ConfigurationError(f'Task index must be non-negative number. Given [{index}].')
    return index
