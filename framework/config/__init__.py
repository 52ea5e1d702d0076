"""The only room that parses, locks, reads or clears gin.

gin says what went wrong in the words of its parser. Here every slip becomes a `ConfigurationError` that names the file,
the line and the binding, the rule, and the nearest valid name. Errors of the user's own code are never translated.
"""

from framework.config.calls import (
    bound_parameters,
    build,
    gin_errors,
    operative_text,
    unused_bindings,
    unused_report,
)
from framework.config.loading import load
from framework.config.registry import clear, config_text, dropped_bindings

__all__ = [
    'bound_parameters',
    'build',
    'clear',
    'config_text',
    'dropped_bindings',
    'gin_errors',
    'load',
    'operative_text',
    'unused_bindings',
    'unused_report',
]
