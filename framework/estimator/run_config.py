"""`RunConfig` as `tf.estimator` had it: constructor, fields, `replace`, and what `TF_CONFIG` says of the cluster."""

import copy
import json
import os
from collections.abc import Callable, Collection
from typing import Any, Self

from tensorflow.compat import v1

from framework import errors, run_config, topology
from framework.calling import CallSignature
from framework.session import identity

_UNSET: Any = object()
_SAVE_CHECKPOINTS = ('save_checkpoints_steps', 'save_checkpoints_secs')
_BOTH = '`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.'
_DEFAULT_SAVE_SECS = 600
_LEVELS = (identity.OFF, identity.EXACT)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _takes_op(device_fn: Any) -> bool:
    return callable(device_fn) and CallSignature.of(device_fn, name='device_fn').named == ('op',)


# What each field must be, unless it is None, and what that is called.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    'model_dir': (bool, 'model_dir should be non-empty'),
    'save_summary_steps': (lambda steps: steps >= 0, 'save_summary_steps should be >= 0'),
    'save_checkpoints_steps': (lambda steps: steps >= 0, 'save_checkpoints_steps should be >= 0'),
    'save_checkpoints_secs': (lambda secs: secs >= 0, 'save_checkpoints_secs should be >= 0'),
    'session_config': (lambda c: isinstance(c, v1.ConfigProto), 'session_config must be instance of ConfigProto'),
    'keep_checkpoint_max': (lambda number: number >= 0, 'keep_checkpoint_max should be >= 0'),
    'keep_checkpoint_every_n_hours': (lambda hours: hours > 0, 'keep_checkpoint_every_n_hours should be > 0'),
    'log_step_count_steps': (lambda steps: steps > 0, 'log_step_count_steps should be > 0'),
    'tf_random_seed': (_is_integer, 'tf_random_seed must be integer.'),
    'experimental_max_worker_delay_secs': (
        _is_integer,
        'experimental_max_worker_delay_secs must be an integer if set.',
    ),
    'session_creation_timeout_secs': (lambda secs: secs > 0, 'session_creation_timeout_secs should be > 0'),
    'device_fn': (_takes_op, 'device_fn must be callable with exactly one argument "op".'),
    'protocol': (lambda name: name in ('grpc', 'grpc+verbs'), 'protocol should be grpc or grpc+verbs'),
    'eval_every_n_steps': (lambda steps: _is_integer(steps) and steps > 0, 'eval_every_n_steps should be > 0'),
}
_OLD_FIELDS = (
    'model_dir',
    'tf_random_seed',
    'save_summary_steps',
    *_SAVE_CHECKPOINTS,
    'session_config',
    'keep_checkpoint_max',
    'keep_checkpoint_every_n_hours',
    'log_step_count_steps',
    'train_distribute',
    'device_fn',
    'protocol',
    'eval_distribute',
    'experimental_distribute',
    'experimental_max_worker_delay_secs',
    'session_creation_timeout_secs',
    'checkpoint_save_graph_def',
)
_OWN_FIELDS = ('keep_input_position', 'reproducible', 'eval_every_n_steps', 'fuse')
_FIELDS = (*_OLD_FIELDS, *_OWN_FIELDS)


class RunConfig:
    """How an Estimator trains: cadences, checkpoints, session; and which task of a cluster this process is.

    The fields that `tf.estimator.RunConfig` had mean the same, and come in its order. What it read from the environment
    variable `TF_CONFIG` is read here, too. Ours are by keyword only:

    Attributes:
        keep_input_position: Whether a call of `train` goes on in the training data where the one before it stopped, in
            this process or in an earlier one, as far as the input function returns the same Dataset. By default each
            call begins with the first example, as in `tf.estimator`.
        reproducible: `off`, or `exact`: draws follow from the seed and the step, calls go on in the data, and a run
            that is killed and started again ends with the same bits, or is refused. See the README.
        eval_every_n_steps: Steps between two evaluations of `train_and_evaluate`; None: at checkpoints where the user
            set when these are made, otherwise every 1000 steps.
        fuse: Whether many steps are made in one run of the session: `auto`, `off` or `require`.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _UNSET,
        save_checkpoints_secs: float | None = _UNSET,
        session_config: v1.ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Callable[..., Any] | None = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float | None = 7200,
        checkpoint_save_graph_def: bool = True,
        *,
        keep_input_position: bool = False,
        reproducible: str = identity.OFF,
        eval_every_n_steps: int | None = None,
        fuse: str = run_config.AUTO,
    ):
        """Checks the fields, and reads `TF_CONFIG`.

        Raises:
            ConfigurationError: If a value breaks its rule, or `TF_CONFIG` is no description of a cluster.
        """
        steps: Any = save_checkpoints_steps
        secs: Any = save_checkpoints_secs
        self._sets_saving = steps is not _UNSET or secs is not _UNSET
        if not self._sets_saving:
            steps, secs = None, _DEFAULT_SAVE_SECS
        steps, secs = (None if value is _UNSET else value for value in (steps, secs))
        if steps is not None and secs is not None:
            raise errors.ConfigurationError(f'{_BOTH} Given [{steps}] and [{secs}].')
        _tell_of_environment()
        self._topology = topology.from_environment()
        given = dict(locals())
        given.update(save_checkpoints_steps=steps, save_checkpoints_secs=secs, model_dir=self._agreed(model_dir))
        for name in _FIELDS:
            setattr(self, f'_{name}', given[name])
        self._check()
        filters = self._topology.device_filters
        if session_config is None and filters is not None:
            default = run_config.default_session_config()
            default.device_filters.extend(filters)
            self._session_config = default

    def _agreed(self, model_dir: Any) -> str | None:
        """Returns the directory that the argument and `TF_CONFIG` say."""
        path = os.fspath(model_dir) if isinstance(model_dir, os.PathLike) else model_dir
        if path == '':
            raise errors.ConfigurationError('model_dir should be non-empty.')
        of_platform = self._topology.model_dir
        if of_platform and path and path != of_platform:
            raise errors.ConfigurationError(
                '`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in '
                f'TF_CONFIG. model_dir: [{path}] TF_CONFIG["model_dir"]: [{of_platform}].'
            )
        if of_platform:
            v1.logging.info('Using model_dir in TF_CONFIG: %s', of_platform)
        return path or of_platform

    def _check(self) -> None:
        for name, (holds, rule) in _RULES.items():
            value = getattr(self, f'_{name}')
            if value is not None and not holds(value):
                raise errors.ConfigurationError(f'{rule.rstrip(".")}. Given [{value!r}].')
        for name in ('train_distribute', 'eval_distribute'):
            # Not by isinstance: importing the class imports what clusters need.
            if type(getattr(self, f'_{name}')).__name__ == 'ParameterServerStrategyV2':
                raise errors.ConfigurationError(
                    'Please use `tf.compat.v1.distribute.experimental.ParameterServerStrategy` for parameter server '
                    f'strategy with estimator. Given `{name}` [{getattr(self, f"_{name}")}].'
                )
        errors.checked_choice('RunConfig.reproducible', self.reproducible, _LEVELS)
        errors.checked_choice('RunConfig.fuse', self.fuse, (run_config.AUTO, run_config.OFF, run_config.REQUIRE))

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other values; setting one checkpoint cadence clears the other.

        Raises:
            ConfigurationError: For a name that is no field that can be replaced, and for a value that breaks its rule.
        """
        copied = copy.deepcopy(self)
        for name, value in changes.items():
            if name not in _FIELDS:
                raise errors.ConfigurationError(
                    f'Replacing {name} is not supported. Allowed properties are {list(_FIELDS)}. '
                    f'{errors.nearest(name, _FIELDS)}'
                )
            setattr(copied, f'_{name}', value)
        copied._agree_on_saving(changes)
        copied._check()
        return copied

    def _agree_on_saving(self, changed: Collection[str]) -> None:
        both = [name for name in _SAVE_CHECKPOINTS if name in changed]
        self._sets_saving = self._sets_saving or bool(both)
        if len(both) == len(_SAVE_CHECKPOINTS):
            if all(getattr(self, name) is not None for name in _SAVE_CHECKPOINTS):
                raise errors.ConfigurationError(_BOTH)
        elif both and getattr(self, f'_{both[0]}') is not None:
            (other,) = set(_SAVE_CHECKPOINTS) - set(both)
            setattr(self, f'_{other}', None)

    @property
    def sets_saving(self) -> bool:
        """Whether the user said when checkpoints are made."""
        return self._sets_saving

    def fields(self) -> dict[str, Any]:
        """Returns the values of all fields by name, those of the cluster among them."""
        return {name: getattr(self, name) for name in (*_FIELDS, *_OF_TOPOLOGY)}

    # The fields. Subclasses in the field set `_name` and read `name`, as they did with tf.estimator's.

    model_dir = property(lambda self: self._model_dir, doc='The directory of checkpoints and events.')
    tf_random_seed = property(lambda self: self._tf_random_seed, doc="Seeds the graphs, None for TensorFlow's own way.")
    save_summary_steps = property(lambda self: self._save_summary_steps, doc='Steps between summaries; 0, None: none.')
    save_checkpoints_steps = property(lambda self: self._save_checkpoints_steps, doc='Steps between checkpoints.')
    save_checkpoints_secs = property(lambda self: self._save_checkpoints_secs, doc='Seconds between checkpoints.')
    session_config = property(lambda self: self._session_config, doc='The configuration of sessions.')
    keep_checkpoint_max = property(lambda self: self._keep_checkpoint_max, doc='Checkpoints that stay; 0, None: all.')
    keep_checkpoint_every_n_hours = property(
        lambda self: self._keep_checkpoint_every_n_hours, doc='Hours between checkpoints that stay beyond that.'
    )
    log_step_count_steps = property(lambda self: self._log_step_count_steps, doc='Steps between lines of progress.')
    train_distribute = property(lambda self: self._train_distribute, doc='The strategy of training.')
    eval_distribute = property(lambda self: self._eval_distribute, doc='The strategy of evaluation.')
    experimental_distribute = property(lambda self: self._experimental_distribute, doc='Both strategies in one.')
    device_fn = property(lambda self: self._device_fn, doc='Returns the device of an op.')
    protocol = property(lambda self: self._protocol, doc='The protocol of servers.')
    experimental_max_worker_delay_secs = property(
        lambda self: self._experimental_max_worker_delay_secs, doc='The longest wait of a worker before it begins.'
    )
    session_creation_timeout_secs = property(
        lambda self: self._session_creation_timeout_secs, doc='How long a session may take to open.'
    )
    checkpoint_save_graph_def = property(
        lambda self: self._checkpoint_save_graph_def, doc='Whether `graph.pbtxt` and `.meta` files are written.'
    )
    keep_input_position = property(lambda self: self._keep_input_position, doc='See the class.')
    reproducible = property(lambda self: self._reproducible, doc='See the class.')
    eval_every_n_steps = property(lambda self: self._eval_every_n_steps, doc='See the class.')
    fuse = property(lambda self: self._fuse, doc='See the class.')

    # What `TF_CONFIG` says; see `framework.topology`.

    cluster_spec = property(lambda self: self._topology.cluster_spec, doc='The cluster, empty for one process.')
    task_type = property(lambda self: self._topology.task_type, doc='What this process is.')
    task_id = property(lambda self: self._topology.task_id, doc='Its index among those of its type.')
    global_id_in_cluster = property(lambda self: self._topology.global_id, doc='Its index in the cluster.')
    master = property(lambda self: self._topology.master, doc='What training sessions connect to.')
    evaluation_master = property(lambda self: self._topology.evaluation_master, doc='The same for evaluation.')
    is_chief = property(lambda self: self._topology.is_chief, doc='Whether this process saves.')
    num_ps_replicas = property(lambda self: self._topology.num_ps_replicas, doc='The parameter servers.')
    num_worker_replicas = property(lambda self: self._topology.num_worker_replicas, doc='The processes that train.')
    service = property(lambda self: self._topology.service, doc='What the platform says of itself.')


_OF_TOPOLOGY = (
    'service',
    'cluster_spec',
    'task_type',
    'task_id',
    'global_id_in_cluster',
    'master',
    'evaluation_master',
    'is_chief',
    'num_ps_replicas',
    'num_worker_replicas',
)


def _tell_of_environment() -> None:
    text = os.environ.get('TF_CONFIG', '')
    try:
        settings = json.loads(text or '{}')
    except ValueError:
        return  # the topology says what is wrong
    if settings:
        v1.logging.info('TF_CONFIG environment variable: %s', settings)


def engine_config(config: RunConfig) -> run_config.RunConfig:
    """Returns the same for our loop, which takes None where 0 meant the same.

    Args:
        config: What the user configured.
    """
    return run_config.RunConfig(
        save_summary_steps=config.save_summary_steps or None,
        save_checkpoints_steps=config.save_checkpoints_steps or None,
        save_checkpoints_secs=config.save_checkpoints_secs or None,
        session_config=config.session_config,
        keep_checkpoint_max=config.keep_checkpoint_max or None,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours or None,
        log_step_count_steps=config.log_step_count_steps or None,
        fuse=config.fuse,
    )
