"""TensorFlow's symbols in gin, `@tf.nn.relu` and `%tf.float32`: what `gin.tf` was, which can't be imported any more.

A symbol becomes known to gin when a text first names it. Where TensorFlow 2 has none of a name, it is that of
`tf.compat.v1`. Some may be written by their end, as under `gin.tf`: `@AdamOptimizer`, `@relu`.
"""

import types
from collections.abc import Iterable
from typing import Any

import gin
import tensorflow as tf
from gin import config as gin_config
from tensorflow.compat import v1

from framework import errors
from framework.config import registry

_ROOT = 'tf'
# gin writes the shortest name that is no other's. Under a second root there is always another, so that texts have whole
# names, which another process understands.
_OTHER_ROOT = 'tensorflow'
_SHORT = {
    'tf.train': (
        *('exponential_decay', 'inverse_time_decay', 'natural_exp_decay', 'polynomial_decay', 'piecewise_constant'),
        *('cosine_decay', 'linear_cosine_decay', 'GradientDescentOptimizer', 'AdadeltaOptimizer', 'AdagradOptimizer'),
        *('AdagradDAOptimizer', 'MomentumOptimizer', 'AdamOptimizer', 'FtrlOptimizer', 'RMSPropOptimizer'),
        *('ProximalGradientDescentOptimizer', 'ProximalAdagradOptimizer'),
    ),
    'tf.losses': (
        *('absolute_difference', 'cosine_distance', 'hinge_loss', 'huber_loss', 'log_loss'),
        *('mean_pairwise_squared_error', 'mean_squared_error', 'sigmoid_cross_entropy'),
        *('softmax_cross_entropy', 'sparse_softmax_cross_entropy'),
    ),
    'tf.keras.optimizers': ('Adadelta', 'Adagrad', 'Adam', 'Adamax', 'Ftrl', 'Nadam', 'RMSprop', 'SGD'),
    'tf.keras.optimizers.schedules': (
        *('ExponentialDecay', 'PiecewiseConstantDecay', 'PolynomialDecay', 'InverseTimeDecay', 'CosineDecay'),
        'CosineDecayRestarts',
    ),
    'tf.nn': (
        *('crelu', 'dropout', 'elu', 'leaky_relu', 'relu', 'relu6', 'sigmoid', 'softmax', 'softplus', 'softsign'),
        'tanh',
    ),
    'tf.math': ('squared_difference',),
    'tf': (
        *('float16', 'float32', 'float64', 'bfloat16', 'complex64', 'complex128', 'int8', 'uint8', 'int16', 'uint16'),
        *('int32', 'int64', 'bool', 'string'),
    ),
}
_BY_END = {
    '.'.join(parts[start:]): '.'.join(parts)
    for module, names in _SHORT.items()
    for parts in [f'{module}.{name}'.split('.') for name in names]
    for start in range(1, len(parts))
}


def resolve(selector: str, context: Any, where: str = '', name: str = '', sign: str = '') -> Any:
    """Returns gin's record of the configurable that a selector means in a file, or of a symbol of TensorFlow.

    Args:
        selector: The selector, without scope: `tf.nn.relu`, `relu`, `digits.model_fn`.
        context: The parse context of the file, for gin's dynamic registration, under which TensorFlow is imported.
        where: How the message begins.
        name: The parameter that follows the selector, where one does.
        sign: '@' where the selector stands in a reference.

    Raises:
        ConfigurationError: If there is nothing of that name, or it is a value.
    """
    if not registry.is_dynamic(context):
        try:
            selector = _made_known(selector)
        except errors.ConfigurationError as error:
            raise errors.ConfigurationError(f'{where}{error}') from None
    return registry.resolve(selector, context, where, name, sign)


def _made_known(selector: str) -> str:
    name = _whole_name(selector, registry.REGISTRY)
    if not _is_of_tensorflow(name) or name in registry.REGISTRY:
        return name
    symbol = _symbol(name, '@')
    if not callable(symbol):
        raise errors.ConfigurationError(f'`@{selector}` is a value, no function. Write `%{name}`.')
    module, _, last = name.rpartition('.')
    for root in (_OTHER_ROOT, _ROOT):
        gin.external_configurable(symbol, last, module=root + module.removeprefix(_ROOT))
    return name


def constant_known_as(selector: str) -> str:
    """Returns the name by which gin knows a constant, which is made known where it is TensorFlow's.

    Args:
        selector: What follows the `%`: `tf.float32`, `float32`, `LEARNING_RATE`.

    Raises:
        ConfigurationError: If TensorFlow has no such symbol, or it is a function.
    """
    if (selector, registry.MACRO) in registry.BOUND:
        return selector
    name = _whole_name(selector, registry.CONSTANTS)
    if not _is_of_tensorflow(name) or name in registry.CONSTANTS:
        return name
    symbol = _symbol(name, '%')
    if callable(symbol):
        raise errors.ConfigurationError(f'`%{selector}` is a function or class, no value. Write `@{name}`.')
    gin.constant(name, symbol)
    return name


def written(configurable: Any, selector: str) -> str:
    """Returns how gin is to write a configurable that a text named by a selector: TensorFlow's by the whole name."""
    return configurable.selector if _is_of_tensorflow(configurable.selector) else selector


def is_second_name(selector: str) -> bool:
    """Returns whether a selector of gin's registry only keeps another one from being shortened."""
    return selector.startswith(f'{_OTHER_ROOT}.') and _ROOT + selector.removeprefix(_OTHER_ROOT) in registry.REGISTRY


@gin.configurable(module='framework')
def singleton_per_graph(constructor: Any) -> Any:
    """Returns one object for each graph and scope: `f.optimizer = @adam/singleton_per_graph()`.

    Args:
        constructor: Makes the object.
    """
    # The graph itself, and no number of it, which another graph may have later.
    return gin_config.singleton_value((gin.current_scope_str(), v1.get_default_graph()), constructor)


def _whole_name(selector: str, known: Any) -> str:
    roots = (f'{_ROOT}.', f'{_OTHER_ROOT}.')
    of_user = [name for name in known.matching_selectors(selector) if not name.startswith(roots)]
    return selector if of_user else _BY_END.get(selector, selector)


def _is_of_tensorflow(name: str) -> bool:
    return name.startswith(f'{_ROOT}.')


def _symbol(name: str, sign: str) -> Any:
    """Returns what a name means in TensorFlow 2, or else in `tf.compat.v1`."""
    _, *parts = name.split('.')
    for root in (tf, v1):
        found = root
        for part in parts:
            found = getattr(found, part, None)
        if found is not None and not isinstance(found, types.ModuleType):
            return found
    raise errors.ConfigurationError(f'TensorFlow has no `{sign}{name}`. {_nearest(parts, sign)}')


def _nearest(parts: list[str], sign: str) -> str:
    """Returns the end of a message: the nearest name in the module that there is."""
    for end in range(len(parts) - 1, -1, -1):
        modules = [module for root in (tf, v1) if (module := _inside(root, parts[:end])) is not None]
        if modules:
            before = '.'.join([_ROOT, *parts[:end]])
            wanted = f'{sign}{before}.{parts[end]}'
            names = {f'{sign}{before}.{each}' for module in modules for each in dir(module) if each[0] != '_'}
            near = errors.nearest(wanted, names)
            return near if near.startswith('Did you mean') else f'`{before}` has nothing like `{parts[end]}`.'
    return ''


def _inside(root: Any, parts: Iterable[str]) -> Any:
    for part in parts:
        root = getattr(root, part, None)
    return root
