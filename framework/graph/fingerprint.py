"""What a part of a graph computes, as a short hash that is the same in every process.

Names of functions hold a counter of the process, and so do some attributes: a function stands for its body.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from framework.graph import movement

_COUNTED = re.compile(r'\d+$')
_NAMED_BY_COUNTER = ('_gradient_op_type', 'token', 'shared_name')  # custom gradients, Python functions, tables
_UNIQUE = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_SAYS_NOTHING = ('_class', '_output_shapes', '_XlaMustCompile', 'metadata')


def fingerprint(graph: tf.Graph, fetches: Iterable[tf.Operation | tf.Tensor], without: str = '') -> str:
    """Returns the hash of everything that the fetches depend on: ops, attributes, constants, functions.

    Args:
        graph: The graph.
        fetches: Ops and tensors of it.
        without: A name scope, with a slash at its end, that is left out: only which of its outputs are used counts.
    """
    definition = graph.as_graph_def()
    nodes = {node.name: node for node in definition.node}
    bodies = _Bodies(definition.library.function)
    ops = [op for op in movement.ancestors(fetches) if not without or not op.name.startswith(without)]
    lines = sorted(_line(nodes[op.name], bodies.digest) for op in ops)
    if without:
        lines = [re.sub(rf' (\^?){re.escape(without)}[^ :]*', rf' \1{without}', line) for line in lines]
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()[:16]


class _Bodies:
    """The functions of a graph, by what they do."""

    def __init__(self, functions: Iterable[Any]):
        self._functions = {function.signature.name: function for function in functions}
        self._digests: dict[str, str] = {}

    def digest(self, name: str) -> str:
        """Returns the hash of a function; its name without the counter where the graph does not hold it."""
        if name not in self._functions:
            return _COUNTED.sub('', name)
        if name not in self._digests:
            self._digests[name] = _COUNTED.sub('', name)  # of a function that calls itself
            self._digests[name] = self._of_body(self._functions[name])
        return self._digests[name]

    def _of_body(self, function: Any) -> str:
        arguments = [f'{arg.type}' for arg in (*function.signature.input_arg, *function.signature.output_arg)]
        nodes = [_line(node, self.digest) for node in function.node_def]
        results = [f'{name}={value}' for name, value in sorted(function.ret.items())]
        return hashlib.sha256('\n'.join([*arguments, *nodes, *results]).encode()).hexdigest()[:16]


def _line(node: Any, digest: Callable[[str], str]) -> str:
    attributes = [f'{name}={_value(name, node.attr[name], digest)}' for name in sorted(node.attr)]
    kept = [text for name, text in zip(sorted(node.attr), attributes, strict=True) if name not in _SAYS_NOTHING]
    # The order of control inputs means nothing.
    inputs = [name for name in node.input if name[0] != '^'] + sorted(name for name in node.input if name[0] == '^')
    return ' '.join([node.op, node.name, node.device, *inputs, *kept])


def _value(name: str, value: Any, digest: Callable[[str], str]) -> str:
    if value.HasField('func'):
        return _function(value.func, digest)
    if value.list.func:
        return ','.join(_function(function, digest) for function in value.list.func)
    if name in _NAMED_BY_COUNTER:
        return _COUNTED.sub('', _UNIQUE.sub('', value.s.decode(errors='replace')))
    return hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()[:16]


def _function(function: Any, digest: Callable[[str], str]) -> str:
    return digest(function.name) + ''.join(
        f'[{name}={_value(name, function.attr[name], digest)}]' for name in sorted(function.attr)
    )
