"""`Estimator`: what `tf.estimator.Estimator` was, over the engine of this framework."""

import copy
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from tensorflow.compat import v1

from framework import errors, run_config, run_dir, spec, warm_start
from framework.calling import CallSignature
from framework.estimator import evaluating, log_lines, memory, model_calls, predicting, saved_models, training
from framework.estimator.run_config import RunConfig, engine_config
from framework.estimator.specs import check_above_zero
from framework.graph.calls import Model
from framework.session import commits, identity, prediction
from framework.session.graphs import Graphs
from framework.spec import ModeKeys

_ADVICE = 'Please use tf.estimator.train_and_evaluate which calls proper API according to given configuration.'


class Estimator:
    """Trains, evaluates and exports the model of a model_fn.

    The arguments, defaults, files and log lines are those of `tf.estimator.Estimator`. Training is a run of this
    framework: one graph, commits that hold, steps in one call where that can be. Methods may be overridden.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ):
        """Checks the arguments; nothing is built before a method is called.

        Args:
            model_fn: `model_fn(features, labels, mode, params, config)`, asked for by name; returns an `EstimatorSpec`.
            model_dir: The directory of checkpoints and events. None or '': that of `config`, else a temporary one.
            config: How it runs.
            params: Handed to functions that name `params`, a fresh copy each time.
            warm_start_from: A path (of a checkpoint, a directory or a SavedModel) for all trainable variables, or
                `WarmStartSettings`: what a model without a checkpoint begins with.

        Raises:
            ConfigurationError: If a value breaks its rule.
        """
        log_lines.tell_once()
        self._config = _completed_config(config, model_dir)
        shown = {f'_{name}': value for name, value in self._config.fields().items()}
        v1.logging.info('Using config: %s', shown)
        if model_fn is None:
            raise errors.ConfigurationError('model_fn must be provided to Estimator.')
        spec.check_model_fn(model_fn, has_params=params is not None)
        self._model_fn = model_fn
        self._params = _copied({} if params is None else params)
        self._warm_start_settings = warm_start.as_settings(warm_start_from)
        self._memory = memory.Memory()
        self._input_fn: Callable[..., Any] | None = None  # the newest that it was called with

    # What it is made of.

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and events."""
        return self._config.model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of its configuration."""
        return copy.deepcopy(self._config)

    @property
    def params(self) -> Any:
        """A copy of its params."""
        return _copied(self._params)

    @property
    def model_fn(self) -> Callable[..., spec.EstimatorSpec]:
        """The model_fn, bound to `params`: `model_fn(features, labels, mode, config)`."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> spec.EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> spec.EstimatorSpec:
        return spec.call_model_fn(
            self._model_fn, features=features, labels=labels, mode=mode, params=self.params, config=config
        )

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the directory of an evaluation's events.

        Args:
            name: The name of the evaluation.
        """
        return os.path.join(self.model_dir, f'eval_{name}' if name else 'eval')

    def latest_checkpoint(self) -> str | None:
        """Returns the prefix of the newest checkpoint's files, None where there is none."""
        return v1.train.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of the variables in the newest checkpoint.

        Raises:
            ConfigurationError: If there is none.
        """
        return [name for name, _ in v1.train.list_variables(self._trained())]

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the newest checkpoint.

        Args:
            name: Its name, as `get_variable_names` has it.

        Raises:
            ConfigurationError: If there is no checkpoint, or it has no such variable.
        """
        checkpoint = self._trained()
        names = self.get_variable_names()
        plain = name.removesuffix(':0')
        if plain not in names:
            raise errors.ConfigurationError(
                f'`{checkpoint}` holds no variable [{name}]. {errors.nearest(plain, names)}'
            )
        return v1.train.load_variable(checkpoint, plain)

    def _trained(self) -> str:
        checkpoint = self.latest_checkpoint()
        if not checkpoint:
            raise errors.ConfigurationError(f'Could not find trained model in model_dir: {self.model_dir}.')
        return checkpoint

    # What it does.

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Iterable[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> Self:
        """Trains, from the newest checkpoint on.

        Args:
            input_fn: Returns the training data, which begins with its first example; `RunConfig.keep_input_position`
                goes on where the call before stopped.
            hooks: SessionRunHooks of training.
            steps: How many steps are made. None: no limit.
            max_steps: The global step to reach. None: no limit. Without both, until the data ends.
            saving_listeners: CheckpointSaverListeners, called around each save.

        Returns:
            The Estimator.

        Raises:
            ConfigurationError: If a value breaks its rule, or this process may not train.
            RunError: If training failed.
        """
        if self._config.task_type in ('evaluator', 'ps'):
            raise errors.ConfigurationError(
                f'Train has been called wrong configuration. {_ADVICE} Current configuration: {self._config.fields()}.'
            )
        if steps is not None and max_steps is not None:
            raise errors.ConfigurationError('Can not provide both steps and max_steps.')
        check_above_zero('steps', steps)
        check_above_zero('max_steps', max_steps)
        if max_steps is not None and max_steps <= training.saved_step(self.model_dir):
            v1.logging.info('Skipping training since max_steps has already saved.')
            return self
        self._input_fn = input_fn
        every = training.checked_hooks(hooks) + self._convert_train_steps_to_hooks(steps, None)
        training.train(self, input_fn, every, max_steps, training.checked_listeners(saving_listeners))
        return self

    def _convert_train_steps_to_hooks(self, steps: int | None, max_steps: int | None) -> list[Any]:
        return [] if steps is None and max_steps is None else [v1.train.StopAtStepHook(steps, max_steps)]

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates a checkpoint, in a graph of its own.

        Args:
            input_fn: Returns the data.
            steps: Batches, None for all.
            hooks: SessionRunHooks of the evaluation.
            checkpoint_path: The prefix of the checkpoint's files, None for the newest.
            name: Events go to `eval_<name>/`, without a name to `eval/`.

        Returns:
            The metrics, with `loss` (the mean over batches) and `global_step`.

        Raises:
            ConfigurationError: If a value breaks its rule, or the data has no batch.
        """
        check_above_zero('steps', steps)
        self._input_fn = input_fn
        return evaluating.evaluate(self, input_fn, steps, training.checked_hooks(hooks), checkpoint_path, name)

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions, each with a session of its own: several may take turns.

        Nothing is built or run before the first `next`. Tensors without an iterator make one batch.

        Args:
            input_fn: Returns the data, or `(features, labels)`, of which the features are taken.
            predict_keys: The predictions to make, where they are a dict; None for all.
            hooks: SessionRunHooks of the prediction.
            checkpoint_path: The prefix of the checkpoint's files, None for the newest.
            yield_single_examples: Whether batches are split along their first axis.

        Raises:
            ConfigurationError: If `predict_keys` and the predictions don't match, or predictions are of unequal length.
        """
        self._input_fn = input_fn
        checked = training.checked_hooks(hooks)
        return predicting.predict(self, input_fn, predict_keys, checked, checkpoint_path, yield_single_examples)

    def predictor(
        self,
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        checkpoint_path: str | None = None,
        input_fn: Callable[..., Any] | None = None,
    ) -> prediction.Predictor:
        """Returns the model, loaded: a call costs one run of the session.

        Args:
            serving_input_receiver_fn: Says what it is fed. None: features as the batches of an input_fn have them.
            checkpoint_path: The prefix of the checkpoint's files, None for the newest.
            input_fn: That input_fn; None for the one that the Estimator was called with last.

        Raises:
            ConfigurationError: If there is neither.
        """
        like = input_fn or self._input_fn
        if serving_input_receiver_fn is None and like is None:
            raise errors.missing('input_fn', 'a predictor', 'Give one, or a `serving_input_receiver_fn`.')
        return predicting.predictor(self, serving_input_receiver_fn, checkpoint_path, like)

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes a SavedModel into a directory named by the seconds since the epoch.

        Args:
            export_dir_base: The directory of exports.
            serving_input_receiver_fn: Makes the receiver that the model is fed by.
            assets_extra: Path below `assets.extra/` to the path of the file that is copied there.
            as_text: Whether the graph is written as text.
            checkpoint_path: The prefix of the checkpoint's files, None for the newest.
            experimental_mode: What model_fn is called for.

        Returns:
            The path of the SavedModel, as bytes.

        Raises:
            ConfigurationError: If there is no receiver or no checkpoint, or nothing can be served.
        """
        if not serving_input_receiver_fn:
            raise errors.ConfigurationError('An input_receiver_fn must be defined.')
        receivers = {experimental_mode: serving_input_receiver_fn}
        return saved_models.export(self, export_dir_base, receivers, assets_extra, as_text, checkpoint_path)

    def export_savedmodel(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Does what `export_saved_model` does, under its old name.

        Args:
            export_dir_base: The same.
            serving_input_receiver_fn: The same.
            assets_extra: The same.
            as_text: The same.
            checkpoint_path: The same.
            strip_default_attrs: Whether attributes with default values are left out; without them more versions of
                TensorFlow can read the export.
        """
        if not serving_input_receiver_fn:
            raise errors.ConfigurationError('An input_receiver_fn must be defined.')
        receivers = {ModeKeys.PREDICT: serving_input_receiver_fn}
        return saved_models.export(
            self, export_dir_base, receivers, assets_extra, as_text, checkpoint_path, strip_default_attrs
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Writes one SavedModel with a graph for each mode; see `export_saved_model`.

        Args:
            export_dir_base: The same.
            input_receiver_fn_map: Mode to what makes its receiver.
            assets_extra: The same.
            as_text: The same.
            checkpoint_path: The same.
        """
        return saved_models.export(self, export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path)

    # What the modules of this room ask it for.

    def _model(self) -> Model:
        return model_calls.model_of(self._model_fn, self._params, self.config)

    def _graphs(self, seed: int | None) -> Graphs:
        engine = self._engine_config()
        return Graphs(
            self._model(),
            seed,
            session_config=engine.session_proto,
            keyed=self._config.reproducible != identity.OFF,
            hooked=True,  # a train op that moves no weight may be what somebody wants
            fuse=engine.fuse,
            loss_per_example=False,
        )

    def _engine_config(self) -> run_config.RunConfig:
        return engine_config(self._config)

    def _directory(self) -> run_dir.RunDir:
        return run_dir.RunDir(os.path.abspath(self.model_dir))

    def _store(self) -> commits.Commits:
        engine = self._engine_config()
        return commits.Commits(
            self._directory(),
            keep=engine.keep_checkpoint_max,
            keep_every_n_hours=engine.keep_checkpoint_every_n_hours,
        )

    def _checkpoint(self, checkpoint_path: str | None, purpose: str) -> str | None:
        """Returns the checkpoint to evaluate or predict with; warns where the weights will be fresh ones."""
        checkpoint = checkpoint_path or self.latest_checkpoint()
        if not checkpoint:
            v1.logging.warning(
                'Could not find trained model in model_dir: %s, running initialization to %s.', self.model_dir, purpose
            )
        return checkpoint


def _copied(params: Any) -> Any:
    return CallSignature('', (), (), False, False).params_argument(params)['params']


def _completed_config(config: RunConfig | None, model_dir: str | os.PathLike[str] | None) -> RunConfig:
    """Returns the configuration with the directory and the session that hold.

    Raises:
        ConfigurationError: If the two directories differ.
    """
    if config is None:
        config = RunConfig()
        v1.logging.info('Using default config.')
    if not isinstance(config, RunConfig):
        raise errors.ConfigurationError(f'config must be an instance of `RunConfig`, but provided {config}.')
    if config.session_config is None:
        config = config.replace(session_config=run_config.default_session_config())
    path = os.fspath(model_dir) if isinstance(model_dir, os.PathLike) else model_dir
    path = path or None  # a flag that nobody set is ''
    if path is not None and config.model_dir is not None and config.model_dir != path:
        raise errors.ConfigurationError(
            '`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: '
            f"'{path}', in `RunConfig`: '{config.model_dir}'."
        )
    if path is None and config.model_dir is None:
        path = tempfile.mkdtemp()
        v1.logging.warning('Using temporary folder as model directory: %s', path)
    return config if path is None else config.replace(model_dir=path)
