"""What in a finished graph can't be drawn or read the same again after a resume."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2  # TensorFlow's format of a Dataset's options
from tensorflow.python.framework import op_def_registry  # says which ops have state; no public function does

from framework.graph import movement
from framework.graph.origin import made_at
from framework.graph.random_ops import read_ahead
from framework.graph.random_ops.datasets import ELEMENTS

_NOT_KEYED = 'a random op that is not keyed: its state is in the session'
_RANDOM = frozenset(
    {
        *('RandomUniform', 'RandomUniformInt', 'RandomStandardNormal', 'TruncatedNormal', 'Multinomial'),
        *('ParameterizedTruncatedNormal', 'RandomShuffle', 'RandomGamma', 'RandomPoisson', 'RandomPoissonV2'),
        *('RandomCrop', 'SampleDistortedBoundingBox', 'SampleDistortedBoundingBoxV2'),
        *('UniformCandidateSampler', 'LogUniformCandidateSampler', 'LearnedUnigramCandidateSampler'),
        *('FixedUnigramCandidateSampler', 'AllCandidateSampler', 'ThreadUnsafeUnigramCandidateSampler'),
        *('FractionalAvgPool', 'FractionalMaxPool', 'NonDeterministicInts', 'Skipgram', 'WordToVec'),
    }
)
STATEFUL = _RANDOM | {'CudnnRNN', 'CudnnRNNV2', 'CudnnRNNV3'}
_LOST_ORDER = (
    'a save while the end of an epoch is read ahead loses the order of the next; let `repeat()` follow the shuffle, '
    'before the function that draws'
)
_DRAWS_AGAIN = 'a repetition in the function of a Dataset draws the same again'
_REASONS = {
    **dict.fromkeys(_RANDOM, _NOT_KEYED),
    **dict.fromkeys(('CudnnRNN', 'CudnnRNNV2', 'CudnnRNNV3'), 'its dropout has state in the session'),
    **dict.fromkeys(('RandomShuffleQueue', 'RandomShuffleQueueV2'), 'a queue is in no checkpoint'),
    **dict.fromkeys(('FIFOQueueV2', 'PaddingFIFOQueueV2', 'PriorityQueueV2'), 'a queue is in no checkpoint'),
    **dict.fromkeys(('PyFunc', 'PyFuncStateless', 'EagerPyFunc'), 'Python code may have state'),
    'GeneratorDataset': 'the position of a Python generator is in no checkpoint',
    'Timestamp': 'it reads the clock',
    'AccumulateNV2': 'it adds up in the order in which its inputs come',
}
_BINCOUNTS = ('Bincount', 'DenseBincount', 'SparseBincount', 'RaggedBincount')
_TABLES = ('LookupTable', 'HashTable', 'MutableHashTable', 'MutableDenseHashTable', 'InitializeTable')
# State of Datasets that their iterators save, and ops that only look as if they had state.
_SAVED = ('DummySeedGenerator', 'DummyMemoryCache', 'AnonymousSeedGenerator', 'AnonymousMemoryCache', 'Assert', 'Print')
_OF_CALLERS = ('PartitionedCall', 'StatefulPartitionedCall', 'If', 'While', 'Case', 'StatelessIf', 'StatelessWhile')


@dataclasses.dataclass(frozen=True)
class Finding:
    """An op that may not do the same again after a resume.

    Attributes:
        op_type: The op's type.
        name: Its name, after the name of its function where it is in one.
        reason: What is the matter, as the end of a sentence.
        made_at: `file:line` of the user's code, empty where it is not known.
        allowed: Whether it does the same again all the same, and is told only because it may surprise: a lookup table
            as long as nothing writes it.
    """

    op_type: str
    name: str
    reason: str
    made_at: str
    allowed: bool = False

    def __str__(self) -> str:
        where = f' at {self.made_at}' if self.made_at else ''
        return f'`{self.name}` [{self.op_type}]{where}: {self.reason}'


def audit(graph: tf.Graph, roots: Iterable[tf.Operation | tf.Tensor]) -> list[Finding]:
    """Returns what is not sure to do the same again, of all that the roots depend on.

    Initial values are left out: nothing depends on the ops that make them but the initialisation.

    Args:
        graph: The finished graph.
        roots: What is run: the fetches of a train run, the initializers of its data.
    """
    functions = _Functions(graph)
    found: dict[str, Finding] = {}
    ops = list(movement.ancestors(roots))
    for op in read_ahead.lost_orders(ops):
        found[op.name] = Finding(op.type, op.name, _LOST_ORDER, made_at(op))
    for op in ops:
        place = made_at(op)
        for finding in (*_of_node(op.node_def, '', place, False), *functions.findings(op.node_def, place)):
            found.setdefault(finding.name, finding)
        if op.type.startswith('CacheDataset') and tf.get_static_value(op.inputs[1]) != b'':
            found[op.name] = Finding(op.type, op.name, 'a killed run leaves its file locked', place)
    return sorted(found.values(), key=lambda finding: finding.name)


def stateful_draws(graph: tf.Graph, ops: Iterable[tf.Operation]) -> list[Finding]:
    """Returns the random ops whose state is in the session, among ops and in the functions that these call.

    Args:
        graph: The graph.
        ops: Ops of it.
    """
    functions: _Functions | None = None
    found: list[Finding] = []
    for op in ops:
        if op.type in STATEFUL:
            found.append(Finding(op.type, op.name, _NOT_KEYED, made_at(op)))
        node = op.node_def
        if movement.function_names(node):
            functions = functions or _Functions(graph)
            found += [one for one in functions.findings(node, made_at(op)) if one.op_type in STATEFUL]
    return found


class _Functions:
    """The functions of a graph."""

    def __init__(self, graph: tf.Graph):
        library = graph.as_graph_def().library.function
        self._bodies = {function.signature.name: function.node_def for function in library}
        self._graphs = {name: _function_graph(graph, name) for name in self._bodies}

    def findings(self, node: Any, place: str, of_dataset: bool = False) -> Iterator[Finding]:
        """Yields what is found in the functions that a node calls, and in those that these call.

        Args:
            node: The node.
            place: Where the node was made.
            of_dataset: Whether the node is in the function of a Dataset.
        """
        stack = [(name, place, of_dataset or _is_dataset(node.op)) for name in movement.function_names(node)]
        seen: set[tuple[str, bool]] = set()
        while stack:
            name, caller, in_dataset = stack.pop()
            if (name, in_dataset) in seen or name not in self._bodies:
                continue
            seen.add((name, in_dataset))
            draws = any(ELEMENTS in inner.name for inner in self._bodies[name])
            for inner in self._bodies[name]:
                at = self._made_at(name, inner.name) or caller
                yield from _of_node(inner, f'{name}/', at, in_dataset)
                if draws and inner.op == 'RepeatDataset':
                    yield Finding(inner.op, f'{name}/{inner.name}', _DRAWS_AGAIN, at, allowed=True)
                called = movement.function_names(inner)
                stack.extend((other, at, in_dataset or _is_dataset(inner.op)) for other in called)

    def _made_at(self, function: str, name: str) -> str:
        graph = self._graphs[function]
        if graph is None:
            return ''
        try:
            return made_at(graph.get_operation_by_name(name))
        except (KeyError, ValueError):
            return ''


def _function_graph(graph: Any, name: str) -> Any:
    """Returns the graph that a function was traced in, None where TensorFlow does not keep it."""
    function = graph._functions.get(name)  # the only way to where an op of a function was made
    return getattr(function, 'graph', None)


def _of_node(node: Any, prefix: str, place: str, in_dataset: bool) -> Iterator[Finding]:
    def finding(reason: str, allowed: bool = False) -> Finding:
        return Finding(node.op, f'{prefix}{node.name}', reason, place, allowed)

    if node.op in _REASONS:
        yield finding(_REASONS[node.op])
    elif node.op in _BINCOUNTS and tf.as_dtype(node.attr['T'].type).is_floating:
        yield finding('it adds up its weights in the order in which threads come')
    elif in_dataset and node.op.startswith(_TABLES):
        yield finding('a lookup table in the function of a Dataset, right as long as nothing writes it', allowed=True)
    elif in_dataset and _has_state(node.op):
        yield finding('an op with state in the function of a Dataset')
    if _is_dataset(node.op):
        yield from (finding(reason) for reason in _faults_of_dataset(node))


def _is_dataset(op_type: str) -> bool:
    return 'Dataset' in op_type and op_type not in ('DatasetToGraphV2', 'DatasetCardinality')


def _faults_of_dataset(node: Any) -> Iterator[str]:
    deterministic = node.attr['deterministic'].s if 'deterministic' in node.attr else b''
    sloppy = node.attr['sloppy'].b if 'sloppy' in node.attr else False
    if deterministic == b'false' or sloppy or (node.op == 'OptionsDataset' and _is_free(node)):
        yield 'its elements come in no fixed order'


def _is_free(node: Any) -> bool:
    options = dataset_options_pb2.Options.FromString(node.attr['serialized_options'].s)
    return options.WhichOneof('optional_deterministic') is not None and not options.deterministic


def _has_state(op_type: str) -> bool:
    if op_type.startswith(_SAVED) or op_type in _OF_CALLERS or _is_dataset(op_type):
        return False
    definition = op_def_registry.get(op_type)
    return definition is not None and definition.is_stateful
