"""A wide-and-deep model_fn on feature columns over a real table: trained, evaluated, predicted, exported, served."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn import datasets
from tensorflow.compat import v1

from framework import estimator

COLUMNS = ('mean_radius', 'mean_texture', 'mean_smoothness', 'mean_concavity')


def table():
    """Returns the cases of the Wisconsin breast cancer set with a column of text, and whether each is benign."""
    loaded = datasets.load_breast_cancer(as_frame=True)
    frame = loaded.data.rename(columns=lambda name: name.replace(' ', '_'))[list(COLUMNS)].astype(np.float32)
    size = pd.cut(loaded.data['mean area'], [0, 400, 700, 3000], labels=['small', 'middle', 'large']).astype(str)
    return frame.assign(size=size), loaded.target


def columns():
    """Returns the columns of the wide part and of the deep part."""
    column = tf.feature_column
    numbers = [column.numeric_column(name) for name in COLUMNS]
    size = column.categorical_column_with_vocabulary_list('size', ['small', 'middle', 'large'])
    radius = column.bucketized_column(numbers[0], [10, 13, 16, 20])
    wide = [size, radius, column.crossed_column([radius, 'size'], 20)]
    return wide, [*numbers, column.embedding_column(size, 2)]


def model_fn(features, labels, mode, params):
    wide, deep = columns()
    hidden = v1.feature_column.input_layer(features, deep)
    for units in params['hidden']:
        hidden = v1.layers.dense(hidden, units, activation=tf.nn.relu)
    logits = v1.layers.dense(hidden, 1) + v1.feature_column.linear_model(features, wide)
    predictions = {'probability': tf.sigmoid(logits)[:, 0]}
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions=predictions)
    target = tf.cast(labels, tf.float32)
    loss = v1.losses.sigmoid_cross_entropy(target, logits[:, 0])
    metrics = {'accuracy': v1.metrics.accuracy(target, tf.round(predictions['probability']))}
    if mode == estimator.ModeKeys.EVAL:
        return estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    of_wide = v1.trainable_variables('linear_model')
    of_deep = [variable for variable in v1.trainable_variables() if not variable.name.startswith('linear_model')]
    train_op = tf.group(
        v1.train.FtrlOptimizer(0.1).minimize(loss, var_list=of_wide),
        v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step(), var_list=of_deep),
    )
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    features, labels = table()
    config = estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=100)
    directory = str(tmp_path_factory.mktemp('wide_and_deep'))
    made = estimator.Estimator(model_fn, directory, config, params={'hidden': [8, 4]})
    inputs = estimator.inputs
    train = inputs.pandas_input_fn(features[:400], labels[:400], batch_size=32, num_epochs=None, shuffle=True)
    valid = inputs.pandas_input_fn(features[400:], labels[400:], batch_size=50, shuffle=False)
    wide, deep = columns()
    spec = tf.feature_column.make_parse_example_spec([*wide, *deep])
    exporter = estimator.FinalExporter('served', estimator.export.build_parsing_serving_input_receiver_fn(spec))
    result = estimator.train_and_evaluate(
        made, estimator.TrainSpec(train, 300), estimator.EvalSpec(valid, steps=None, exporters=exporter)
    )
    return made, valid, result


def test_it_learns_and_the_graph_of_its_own_agrees(trained):
    made, valid, (metrics, _) = trained
    assert metrics['accuracy'] > 0.85
    alone = made.evaluate(valid)
    assert alone['loss'] == pytest.approx(metrics['loss'], rel=1e-5)
    assert alone['accuracy'] == metrics['accuracy']


def test_what_is_served_is_what_is_predicted(trained):
    made, valid, (_, exported) = trained
    features, _ = table()
    predicted = [prediction['probability'] for prediction in made.predict(valid)]
    served = tf.saved_model.load(exported[0].decode())
    examples = [example(row) for _, row in features[400:].iterrows()]
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ['serve'], exported[0].decode()).signature_def['serving_default']
        feeds = {signature.inputs['examples'].name: examples}
        found = session.run(signature.outputs['probability'].name, feeds)
    np.testing.assert_allclose(found, predicted, rtol=1e-5)
    assert 'serving_default' in served.signatures


def example(row):
    feature = tf.train.Feature
    numbers = {name: feature(float_list=tf.train.FloatList(value=[row[name]])) for name in COLUMNS}
    size = feature(bytes_list=tf.train.BytesList(value=[row['size'].encode()]))
    return tf.train.Example(features=tf.train.Features(feature={**numbers, 'size': size})).SerializeToString()
