"""The graph as it is drawn."""

import numpy as np
import tensorflow as tf

from framework.graph import drawing


def test_large_constants_lose_their_values_and_nothing_else(fresh_graph):
    small, large = tf.constant([1.0, 2.0], name='small'), tf.constant(np.ones([100, 10]), name='large')
    text = tf.constant('x' * 5000, name='text')
    tf.add(small, 1.0, name='sum')
    drawn = drawing.definition(fresh_graph)
    nodes = {node.name: node for node in drawn.node}
    assert nodes.keys() == {op.name for op in fresh_graph.get_operations()}
    np.testing.assert_array_equal(tf.make_ndarray(nodes['small'].attr['value'].tensor), [1, 2])
    for value in (large, text):
        assert 'value' not in nodes[value.op.name].attr
        assert nodes[value.op.name].attr['dtype'].type == value.dtype.as_datatype_enum
    assert list(nodes['sum'].input) == ['small', 'sum/y']
    (shape,) = nodes['large'].attr['_output_shapes'].list.shape
    assert tf.TensorShape(shape) == [100, 10]
    assert drawn.ByteSize() < 2000
