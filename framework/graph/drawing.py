"""A graph for people to look at: its ops and how they hang together."""

import tensorflow as tf
from tensorflow.compat import v1

_LARGEST_CONSTANT = 1024  # bytes


def definition(graph: tf.Graph) -> v1.GraphDef:
    """Returns the nodes of a graph with their shapes; constants above 1 KiB have no value.

    Functions are left out: asking TensorFlow for them serialises the whole graph, and constants may be the whole data.

    Args:
        graph: The graph.
    """
    drawn = v1.GraphDef()
    drawn.versions.producer = graph.graph_def_versions.producer
    for op in graph.get_operations():
        node = drawn.node.add()
        if op.type == 'Const' and _is_large(op.outputs[0]):  # not even copied: it may be gigabytes
            node.name, node.op, node.device = op.name, op.type, op.device
            node.input.extend(f'^{before.name}' for before in op.control_inputs)
            node.attr['dtype'].type = op.outputs[0].dtype.as_datatype_enum
        else:
            node.CopyFrom(op.node_def)
            if op.type == 'Const' and node.ByteSize() > _LARGEST_CONSTANT:  # strings, whose length no shape tells
                del node.attr['value']
        node.attr['_output_shapes'].list.shape.extend(value.shape.as_proto() for value in op.outputs)
    return drawn


def _is_large(value: tf.Tensor) -> bool:
    return value.shape.num_elements() * value.dtype.size > _LARGEST_CONSTANT
