"""The only room that parses, locks, reads or clears gin.

gin says what went wrong in the words of its parser. Here every slip becomes a `ConfigurationError` that names the file,
the line and the binding, the rule, and the nearest valid name. Errors of the user's own code are never translated.
"""

from framework.config.calls import (
    bound_parameters,
    build,
    check_all_used,
    gin_errors,
    operative_text,
    unused_bindings,
    unused_report,
)
from framework.config.loading import load
from framework.config.parameters import overview
from framework.config.places import clear, overridden
from framework.config.texts import bindings_in, bound_values, config_text, dropped_bindings, imports_in, left_out

__all__ = [
    'bindings_in',
    'bound_parameters',
    'bound_values',
    'build',
    'check_all_used',
    'clear',
    'config_text',
    'dropped_bindings',
    'gin_errors',
    'imports_in',
    'left_out',
    'load',
    'operative_text',
    'overridden',
    'overview',
    'unused_bindings',
    'unused_report',
]
