import contextlib
import copy
import functools
import sys

import gin
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from framework.errors import ConfigurationError, ConfigurationTypeError
from framework.spec import (
    ClassificationOutput,
    EstimatorSpec,
    ExportOutput,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
    call_model_fn,
    check_model_fn,
)

v1 = tf.compat.v1
TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
EAGER = tf.constant(1.0)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as fresh:
        yield fresh


@pytest.fixture(autouse=True)
def clear_gin():
    gin.clear_config()
    yield
    gin.clear_config()


def train_spec(**fields):
    return EstimatorSpec(TRAIN, **{'loss': tf.constant(1.0), 'train_op': tf.no_op(), **fields})


def eval_spec(**fields):
    return EstimatorSpec(EVAL, **{'loss': tf.constant(1.0), **fields})


def predict_spec(**fields):
    return EstimatorSpec(PREDICT, **{'predictions': tf.constant([1.0]), **fields})


def run(*fetches):
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        return [session.run(fetch) for fetch in fetches]


# Modes and the namedtuple.


def test_mode_keys_are_the_strings_of_tf_estimator():
    assert (TRAIN, EVAL, PREDICT) == ('train', 'eval', 'infer')


@pytest.mark.parametrize('mode', ['predict', 'TRAIN', None, 1])
def test_an_unknown_mode_is_refused_with_the_valid_ones(mode):
    with pytest.raises(ConfigurationError, match=r"`mode` \[.*must be one of ModeKeys.*PREDICT \('infer'\)"):
        EstimatorSpec(mode, predictions=tf.constant(1.0))


def test_the_spec_is_a_namedtuple_of_eleven_fields_in_the_old_order():
    assert EstimatorSpec._fields == (
        'mode', 'predictions', 'loss', 'train_op', 'eval_metric_ops', 'export_outputs', 'training_chief_hooks',
        'training_hooks', 'scaffold', 'evaluation_hooks', 'prediction_hooks',
    )  # fmt: skip


def test_the_spec_unpacks_and_takes_its_fields_by_position():
    predictions, loss, train_op = tf.constant([1.0]), tf.constant(1.0), tf.no_op()
    mode, *rest = EstimatorSpec(TRAIN, predictions, loss, train_op)
    assert mode == TRAIN
    assert rest[0] is predictions
    assert rest[1] is loss
    assert rest[2] is train_op


def test_fields_that_are_not_given_are_empty():
    spec = train_spec()
    assert (spec.predictions, spec.eval_metric_ops, spec.export_outputs) == ({}, {}, None)
    assert spec.training_hooks == spec.training_chief_hooks == spec.evaluation_hooks == spec.prediction_hooks == ()
    assert isinstance(spec.scaffold, v1.train.Scaffold)


@pytest.mark.parametrize('mode', [TRAIN, EVAL, PREDICT])
def test_one_spec_with_all_fields_is_legal_in_every_mode(mode):
    value = tf.constant(1.0)
    spec = EstimatorSpec(mode, value, value, tf.no_op(), {'m': (value, value)}, {'p': PredictOutput(value)})
    assert spec.mode == mode


def test_a_copy_is_an_equal_spec():
    spec = eval_spec()
    assert copy.copy(spec) == spec
    assert type(copy.copy(spec)) is EstimatorSpec


def test_replace_changes_a_field_and_keeps_the_rest():
    spec, loss = train_spec(), tf.constant(2.0)
    replaced = spec._replace(loss=loss, mode=TRAIN)
    assert replaced.loss is loss
    assert replaced.train_op is spec.train_op
    assert type(replaced) is EstimatorSpec


def test_replace_validates_again():
    with pytest.raises(ConfigurationError, match='Loss must be scalar'):
        train_spec()._replace(loss=tf.constant([1.0, 2.0]))


def test_replace_refuses_another_mode():
    with pytest.raises(ConfigurationError, match=r'^mode of EstimatorSpec cannot be changed\..*\[train\].*\[eval\]'):
        train_spec()._replace(mode=EVAL)


def test_replace_names_the_nearest_field():
    with pytest.raises(ConfigurationError, match=r'no field `losss`. Did you mean `loss`'):
        train_spec()._replace(losss=tf.constant(1.0))


# Required fields.


@pytest.mark.parametrize(
    ('mode', 'fields', 'message'),
    [
        (TRAIN, ['loss'], '^Missing train_op.'),
        (TRAIN, ['train_op'], '^Missing loss.'),
        (EVAL, ['predictions'], '^Missing loss.'),
        (PREDICT, ['loss', 'train_op'], '^Missing predictions.'),
    ],
)
def test_what_a_mode_needs_is_required(mode, fields, message):
    values = {'loss': tf.constant(1.0), 'train_op': tf.no_op(), 'predictions': tf.constant(1.0)}
    with pytest.raises(ConfigurationError, match=message):
        EstimatorSpec(mode, **{name: values[name] for name in fields})


@pytest.mark.parametrize(
    ('mode', 'fields'), [(TRAIN, ['loss', 'train_op']), (EVAL, ['loss']), (PREDICT, ['predictions'])]
)
def test_what_a_mode_needs_is_enough(mode, fields):
    values = {'loss': tf.constant(1.0), 'train_op': tf.no_op(), 'predictions': tf.constant(1.0)}
    assert EstimatorSpec(mode, **{name: values[name] for name in fields}).mode == mode


# Loss.


@pytest.mark.parametrize('shape', [[], [1], [1, 1]])
def test_a_loss_of_one_element_becomes_a_scalar(shape):
    loss = eval_spec(loss=tf.fill(shape, 2.5)).loss
    assert loss.shape.rank == 0
    np.testing.assert_allclose(run(loss), [2.5])


@pytest.mark.parametrize(('shape', 'rank'), [(None, None), ([None], 0), ([None, 1], 0)])
def test_a_loss_of_unknown_shape_is_accepted(shape, rank):
    assert eval_spec(loss=v1.placeholder(tf.float32, shape)).loss.shape.rank == rank


@pytest.mark.parametrize('shape', [[2], [0], [1, 3], [None, 2]])
def test_a_loss_of_more_or_fewer_elements_is_refused(shape):
    with pytest.raises(ConfigurationError, match=r'^Loss must be scalar, given: '):
        eval_spec(loss=v1.placeholder(tf.float32, shape))


@pytest.mark.parametrize('loss', [1.0, 'loss', [1.0]])
def test_a_loss_that_is_no_tensor_is_a_type_error(loss):
    with pytest.raises(TypeError, match=r'^loss must be Tensor, given: '):
        eval_spec(loss=loss)


def test_a_sparse_loss_is_a_type_error():
    with pytest.raises(TypeError, match=r'^loss must be Tensor, given: .*tf.sparse.to_dense'):
        eval_spec(loss=tf.sparse.from_dense([1.0]))


def test_a_variable_as_loss_is_read():
    loss = eval_spec(loss=tf.Variable(3.0)).loss
    assert isinstance(loss, tf.Tensor)
    assert run(loss) == [3.0]


# Train op.


def test_train_op_may_be_an_operation_or_a_tensor():
    operation, tensor = tf.no_op(), tf.constant(1.0)
    assert train_spec(train_op=operation).train_op is operation
    assert train_spec(train_op=tensor).train_op is tensor


def test_a_variable_as_train_op_is_replaced_by_the_op_that_assigns_it():
    variable = tf.Variable(1.0)
    train_op = train_spec(train_op=variable.assign_add(2.0)).train_op
    assert isinstance(train_op, tf.Operation)
    with v1.Session() as session:
        session.run(variable.initializer)
        session.run(train_op)
        assert session.run(variable) == 3.0


@pytest.mark.parametrize('train_op', [1.0, [], 'op', lambda: None])
def test_a_train_op_of_another_type_is_a_type_error(train_op):
    with pytest.raises(TypeError, match=r'^train_op must be Operation or Tensor, given: .*tf.group'):
        train_spec(train_op=train_op)


@pytest.mark.parametrize('scope', ['', 'outer'])
@pytest.mark.parametrize('optimizer', [tf_keras.optimizers.SGD, tf_keras.optimizers.Adam])
def test_a_new_style_keras_optimizer_is_refused_because_it_changes_no_weight(optimizer, scope):
    weight = tf.Variable(1.0)
    with tf.name_scope(scope) if scope else contextlib.nullcontext():
        train_ops = [optimizer(0.1).apply_gradients([(tf.constant(1.0), weight)]) for _ in range(2)]
    for train_op in train_ops:
        with pytest.raises(ConfigurationError, match=r'new-style Keras optimizer.*legacy'):
            train_spec(train_op=train_op)


@pytest.mark.parametrize('make', [tf_keras.optimizers.legacy.SGD, v1.train.GradientDescentOptimizer])
def test_a_legacy_optimizer_is_accepted_and_changes_the_weight(make):
    weight = tf.Variable(1.0)
    spec = train_spec(train_op=make(0.5).apply_gradients([(tf.constant(1.0), weight)]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(spec.train_op)
        assert session.run(weight) == 0.5


def test_counting_after_the_update_is_a_train_op():
    counter = tf.Variable(0, name='iteration')
    with tf.control_dependencies([tf.no_op()]):
        after = counter.assign_add(1)
    for train_op in (v1.train.get_or_create_global_step().assign_add(1), after):
        assert train_spec(train_op=train_op).train_op.type == 'AssignAddVariableOp'


# Predictions.


def test_predictions_may_be_a_dict_of_tensors_sparse_ones_included():
    predictions = {
        'dense': tf.constant([1.0]),
        'sparse': tf.sparse.from_dense([1.0]),
        'ragged': tf.ragged.constant([[1]]),
    }
    assert eval_spec(predictions=predictions).predictions == predictions


def test_a_variable_as_prediction_is_read():
    predictions = predict_spec(predictions={'x': tf.Variable(3.0)}).predictions
    assert isinstance(predictions['x'], tf.Tensor)


@pytest.mark.parametrize(
    ('predictions', 'message'),
    [
        ({'x': 1.0}, r'^predictions\[x\] must be Tensor, given: \[1.0\]'),
        ([1.0], '^predictions must be Tensor, given: '),
        ('text', '^predictions must be Tensor, given: '),
    ],
)
def test_predictions_of_another_type_are_a_type_error(predictions, message):
    with pytest.raises(TypeError, match=message):
        eval_spec(predictions=predictions)


# Graphs.


@pytest.mark.parametrize(
    ('name', 'wrap'),
    [
        ('loss', lambda t: {'loss': t}),
        ('train_op', lambda t: {'train_op': t.op}),
        ('predictions', lambda t: {'predictions': t}),
        ('predictions[x]', lambda t: {'predictions': {'x': t}}),
        ('eval_metric_ops[m]', lambda t: {'eval_metric_ops': {'m': (t, tf.no_op())}}),
        ('eval_metric_ops[m]', lambda t: {'eval_metric_ops': {'m': (tf.constant(1.0), t.op)}}),
    ],
)
def test_a_tensor_of_another_graph_is_refused_by_name_and_with_the_usual_causes(name, wrap):
    with tf.Graph().as_default():
        foreign = tf.constant(1.0, name='foreign')
    with pytest.raises(ConfigurationError) as error:
        train_spec(**wrap(foreign))
    assert str(error.value).startswith(f'{name} with "foreign')
    assert 'must be from the default graph. Possible causes' in str(error.value)
    assert '2) The object passed through to EstimatorSpec' in str(error.value)


def test_a_variable_of_another_graph_is_refused():
    with tf.Graph().as_default():
        foreign = tf.Variable(1.0)
    with pytest.raises(ConfigurationError, match=r'^loss with ".*" must be from the default graph'):
        eval_spec(loss=foreign)


def test_a_sparse_prediction_of_another_graph_is_refused():
    with tf.Graph().as_default():
        foreign = tf.sparse.from_dense([1.0])
    with pytest.raises(ConfigurationError, match=r'^predictions with ".*" must be from the default graph'):
        eval_spec(predictions=foreign)


def test_an_eager_tensor_is_refused():
    with pytest.raises(ConfigurationError, match=r'^loss with ".*" must be from the default graph'):
        eval_spec(loss=EAGER)


@pytest.mark.parametrize(
    ('make', 'part'),
    [
        (lambda: PredictOutput({'y': tf.constant(1.0)}), 'y'),
        (lambda: ClassificationOutput(classes=tf.constant(['a'])), 'classes'),
        (lambda: RegressionOutput(tf.constant(1.0)), 'value'),
    ],
)
def test_an_export_output_of_another_graph_is_refused(make, part):
    with tf.Graph().as_default():
        foreign = make()
    with pytest.raises(ConfigurationError, match=rf'^export_outputs\[s\]\.{part} with'):
        predict_spec(export_outputs={'s': foreign})


# Metrics.


def test_a_metric_counts_what_its_updates_saw():
    spec = eval_spec(eval_metric_ops={'mean': v1.metrics.mean(tf.constant([1.0, 4.0]))})
    value, update = spec.eval_metric_ops['mean']
    _, mean = run_in_order(update, value)
    np.testing.assert_allclose(mean, np.mean([1.0, 4.0]))


def run_in_order(*fetches):
    with v1.Session() as session:
        session.run(v1.local_variables_initializer())
        return [session.run(fetch) for fetch in fetches]


def test_metrics_are_sorted_by_name():
    pair = (tf.constant(1.0), tf.no_op())
    assert list(eval_spec(eval_metric_ops={'b': pair, 'c': pair, 'a': pair}).eval_metric_ops) == ['a', 'b', 'c']


@pytest.mark.parametrize(
    ('metrics', 'message'),
    [
        ([], '^eval_metric_ops must be a dict, given: '),
        ({1: ()}, '^Keys of eval_metric_ops must be strings, given: '),
        ({'m': [1, 2]}, r'^Values of eval_metric_ops must be \(metric_value, update_op\) tuples, given: .* key: \[m\]'),
        ({'m': (1, 2, 3)}, '^Values of eval_metric_ops must be'),
        ({'m': 1.0}, '^Values of eval_metric_ops must be'),
        ({'m': (1.0, 1.0)}, r'^eval_metric_ops\[m\] must be Tensor, given: \[1.0\]'),
    ],
)
def test_metrics_of_another_form_are_a_type_error(metrics, message):
    with pytest.raises(TypeError, match=message):
        eval_spec(eval_metric_ops=metrics)


def test_an_operation_may_update_but_not_be_a_value():
    value, operation = tf.constant(1.0), tf.no_op()
    assert eval_spec(eval_metric_ops={'m': (value, operation)}).eval_metric_ops['m'] == (value, operation)
    with pytest.raises(TypeError, match=r'^eval_metric_ops\[m\] must be Tensor'):
        eval_spec(eval_metric_ops={'m': (operation, value)})
    with pytest.raises(TypeError, match=r'^eval_metric_ops\[m\] must be Operation or Tensor'):
        eval_spec(eval_metric_ops={'m': (value, 1.0)})


def test_variables_as_value_and_update_become_tensors_that_read_after_the_assignment():
    total = tf.Variable(1.0)
    spec = eval_spec(eval_metric_ops={'total': (total, total.assign_add(2.0))})
    value, update = spec.eval_metric_ops['total']
    assert isinstance(value, tf.Tensor)
    assert isinstance(update, tf.Tensor)
    with v1.Session() as session:
        session.run(total.initializer)
        assert (session.run(update), session.run(value)) == (3.0, 3.0)


@pytest.mark.parametrize('name', ['loss', 'global_step'])
def test_reserved_metric_names_are_refused_in_eval_only(name):
    metrics = {name: (tf.constant(1.0), tf.no_op())}
    with pytest.raises(ConfigurationError, match=f'^Metric with name ["`]{name}["`] is not allowed'):
        eval_spec(eval_metric_ops=metrics)
    assert name in train_spec(eval_metric_ops=metrics).eval_metric_ops


def test_a_keras_metric_becomes_a_pair_with_local_variables():
    metric = tf_keras.metrics.Mean()
    metric.update_state(tf.constant([1.0, 5.0]))
    value, update = eval_spec(eval_metric_ops={'mean': metric}).eval_metric_ops['mean']
    for collection in (v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.METRIC_VARIABLES):
        assert [v.name for v in v1.get_collection(collection)] == [v.name for v in metric.variables]
    assert v1.global_variables() == []
    np.testing.assert_allclose(run_in_order(update, value)[1], 3.0)


def test_a_keras_metric_makes_all_of_its_updates():
    metric = tf_keras.metrics.Mean()
    metric.update_state(tf.constant([1.0]))
    metric.update_state(tf.constant([4.0, 4.0]))
    value, update = eval_spec(eval_metric_ops={'mean': metric}).eval_metric_ops['mean']
    np.testing.assert_allclose(run_in_order(update, value)[1], np.mean([1.0, 4.0, 4.0]))


def test_a_keras_metric_under_two_names_adds_its_variables_once():
    metric = tf_keras.metrics.Mean()
    metric.update_state(tf.constant([1.0]))
    eval_spec(eval_metric_ops={'a': metric, 'b': metric})
    assert len(v1.local_variables()) == 2


def test_a_keras_metric_of_another_graph_is_refused():
    with tf.Graph().as_default():
        metric = tf_keras.metrics.Mean()
        metric.update_state(tf.constant([1.0]))
    with pytest.raises(ConfigurationError, match=r'^eval_metric_ops\[m\] with ".*" must be from the default graph'):
        eval_spec(eval_metric_ops={'m': metric})


def test_a_metric_of_tensorflows_own_old_keras_is_converted():
    metrics = pytest.importorskip('tensorflow.python.keras.metrics')
    metric = metrics.Mean()
    metric.update_state(tf.constant([1.0, 5.0]))
    value, update = eval_spec(eval_metric_ops={'m': metric}).eval_metric_ops['m']
    np.testing.assert_allclose(run_in_order(update, value)[1], 3.0)


def test_a_keras_metric_without_update_is_refused_by_name():
    with pytest.raises(ConfigurationError, match=r'^Please call update_state\(...\) on the "idle" metric'):
        eval_spec(eval_metric_ops={'m': tf_keras.metrics.Mean(name='idle')})


def test_a_keras_metric_is_found_without_importing_keras(monkeypatch):
    monkeypatch.delitem(sys.modules, 'tf_keras')
    pair = (tf.constant(1.0), tf.no_op())
    assert eval_spec(eval_metric_ops={'m': pair}).eval_metric_ops['m'] == pair
    assert 'tf_keras' not in sys.modules


def test_a_metric_of_keras_3_is_refused_with_a_remedy():
    keras_3 = type('Metric', (), {'__module__': 'keras.src.metrics.metric'})
    with pytest.raises(TypeError, match=r'is a metric of Keras 3.*tf.compat.v1.metrics'):
        eval_spec(eval_metric_ops={'m': type('Mean', (keras_3,), {})()})


# Hooks and scaffold.

HOOKS = ['training_chief_hooks', 'training_hooks', 'evaluation_hooks', 'prediction_hooks']


@pytest.mark.parametrize('field', HOOKS)
def test_hooks_become_tuples(field):
    hook = v1.train.SessionRunHook()
    assert getattr(eval_spec(**{field: [hook]}), field) == (hook,)
    assert getattr(eval_spec(**{field: (h for h in [hook])}), field) == (hook,)


@pytest.mark.parametrize('field', HOOKS)
@pytest.mark.parametrize('hooks', [['hook'], v1.train.SessionRunHook(), 3, [v1.train.SessionRunHook]])
def test_hooks_of_another_type_are_a_type_error(field, hooks):
    with pytest.raises(TypeError, match=f'^All hooks must be SessionRunHook instances, given: .*`{field}`'):
        eval_spec(**{field: hooks})


def test_a_scaffold_is_kept_and_another_type_refused():
    scaffold = v1.train.Scaffold()
    assert train_spec(scaffold=scaffold).scaffold is scaffold
    with pytest.raises(TypeError, match=r'^scaffold must be tf.train.Scaffold, given: '):
        train_spec(scaffold='scaffold')


# Export outputs.


def test_predict_serves_the_predictions_by_default():
    spec = predict_spec(predictions={'y': tf.constant([1.0])})
    assert list(spec.export_outputs) == ['serving_default']
    assert spec.export_outputs['serving_default'].outputs == spec.predictions


def test_a_single_export_output_becomes_the_default_and_the_given_dict_is_left_alone():
    given = {'mine': PredictOutput(tf.constant([1.0]))}
    outputs = predict_spec(export_outputs=given).export_outputs
    assert outputs == {'mine': given['mine'], 'serving_default': given['mine']}
    assert list(given) == ['mine']


def test_of_several_export_outputs_one_is_the_default():
    output = PredictOutput(tf.constant([1.0]))
    given = {'a': output, 'serving_default': output}
    assert predict_spec(export_outputs=given).export_outputs == given
    with pytest.raises(ConfigurationError, match=r"^Multiple export_outputs .*\['a', 'b'\].*'serving_default'"):
        predict_spec(export_outputs={'a': output, 'b': output})


@pytest.mark.parametrize('outputs', [['y'], {'y': 'text'}])
def test_export_outputs_of_another_type_are_a_type_error(outputs):
    with pytest.raises(TypeError, match='export_outputs must be'):
        predict_spec(export_outputs=outputs)


@pytest.mark.parametrize('make', [train_spec, eval_spec])
def test_export_outputs_are_ignored_outside_of_predict(make):
    assert make(export_outputs='anything').export_outputs == 'anything'


def test_an_export_output_of_the_user_is_accepted():
    class Mine(ExportOutput):
        pass

    assert 'm' in predict_spec(export_outputs={'m': Mine()}).export_outputs
    with pytest.raises(NotImplementedError, match=r'Mine\.as_signature_def'):
        Mine().as_signature_def({})


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (ClassificationOutput, '^Cannot create a ClassificationOutput with empty arguments'),
        (lambda: ClassificationOutput(scores=tf.constant([1])), '^Classification scores must be a float32 Tensor; got'),
        (lambda: ClassificationOutput(classes=tf.constant([1])), '^Classification classes must be a string Tensor'),
        (lambda: ClassificationOutput(scores=[1.0]), '^Classification scores must be a float32 Tensor; got'),
        (lambda: RegressionOutput(tf.constant(['a'])), '^Regression output value must be a float32 Tensor; got'),
        (lambda: PredictOutput({1: tf.constant(1.0)}), '^Prediction output key must be a string; got'),
        (lambda: PredictOutput({'x': 1.0}), '^Prediction output value must be a Tensor; got'),
    ],
)
def test_export_outputs_check_their_tensors(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_predict_output_names_a_single_tensor_and_joins_tuples():
    tensor = tf.constant(1.0)
    assert PredictOutput(tensor).outputs == {'output': tensor}
    assert PredictOutput({('head', 'y'): tensor}).outputs == {'head/y': tensor}


def test_signature_defs_carry_inputs_outputs_and_method():
    examples, x = v1.placeholder(tf.string, [None]), v1.placeholder(tf.float32, [None])
    scores, classes = tf.constant([[0.5]]), tf.constant([['cat']])
    classify = ClassificationOutput(scores, classes).as_signature_def({'examples': examples})
    regress = RegressionOutput(scores).as_signature_def({'examples': examples})
    predict = PredictOutput({'y': scores}).as_signature_def({'x': x})
    assert [s.method_name.rpartition('/')[-1] for s in (classify, regress, predict)] == [
        'classify',
        'regress',
        'predict',
    ]
    assert set(classify.outputs) == {'scores', 'classes'}
    assert classify.inputs['inputs'].name == examples.name
    assert regress.outputs['outputs'].name == scores.name
    assert (predict.inputs['x'].name, predict.outputs['y'].name) == (x.name, scores.name)


@pytest.mark.parametrize('output', [ClassificationOutput, RegressionOutput])
def test_classify_and_regress_take_one_string_input_only(output):
    examples, x = v1.placeholder(tf.string), v1.placeholder(tf.float32)
    for receiver in ({'x': x}, {'examples': examples, 'x': x}, {}):
        with pytest.raises(
            ConfigurationError, match=r'signatures can only accept a single tensor input of type tf.str'
        ):
            output(tf.constant([1.0])).as_signature_def(receiver)


# check_model_fn: what is accepted.


class Model:
    def build(self, features, labels, mode):
        return eval_spec()

    def __call__(self, features, labels, mode, width=3):
        return eval_spec()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def with_hidden(features, labels, mode, hidden):
    return EstimatorSpec(mode, loss=tf.constant(float(hidden)))


@gin.configurable('spec_test_model', module='tests')
def gin_model(features, labels, mode, hidden, width=3):
    if hidden == 'raise':
        raise TypeError("body() missing 1 required positional argument: 'mine'")
    if hidden == 'inner':
        inner_model()
    return EstimatorSpec(mode, loss=tf.constant(float(hidden)))


@gin.configurable('spec_test_keyword_only', module='tests')
def gin_keyword_only(features, *, depth):
    return eval_spec()


@gin.configurable('spec_test_required', module='tests')
def gin_required(features, batch=gin.REQUIRED):
    return eval_spec()


@gin.configurable('spec_test_inner', module='tests')
def inner_model(size):
    return size


@gin.configurable('spec_test_params', module='tests')
def gin_params(features, mode, params):
    return EstimatorSpec(mode, loss=tf.constant(params['loss']))


@pytest.mark.parametrize(
    'model_fn',
    [
        lambda features: None,
        lambda features, labels, mode, config: None,
        lambda features, hidden=3: None,
        lambda features, *rest, **more: None,
        lambda **everything: None,
        Model().build,
        Model(),
        functools.partial(with_hidden, hidden=3),
        functools.partial(functools.partial(lambda size, depth, features: None, 1), depth=2),
        decorated(lambda features, labels, mode: None),
        decorated(functools.partial(with_hidden, hidden=3)),
        tf.function(lambda features, labels, width=3: None),
    ],
)
def test_a_model_fn_that_can_be_called_is_accepted(model_fn):
    check_model_fn(model_fn, has_params=False)


@pytest.mark.parametrize('model_fn', [with_hidden, decorated(with_hidden), gin_model, decorated(gin_model)])
def test_an_argument_that_gin_binds_is_accepted(model_fn):
    check_model_fn(model_fn, has_params=False, bound=['hidden'])


# check_model_fn: what is refused.


@pytest.mark.parametrize('model_fn', [None, 'model', 3])
def test_a_model_fn_that_is_no_callable_is_a_type_error(model_fn):
    with pytest.raises(ConfigurationTypeError, match=r'^`model_fn` must be callable, given: \['):
        check_model_fn(model_fn, has_params=False)


def test_a_callable_without_signature_is_refused():
    with pytest.raises(ConfigurationTypeError, match=r'^`model_fn` .* has no signature that Python can read'):
        check_model_fn(min, has_params=False)


@pytest.mark.parametrize(
    'model_fn',
    [lambda x: None, lambda: None, lambda labels, mode: None, lambda features, /: None, decorated(lambda x: 0)],
)
def test_a_model_fn_without_features_is_refused(model_fn):
    with pytest.raises(ConfigurationError, match=r'^model_fn \(.*\) must include features argument\.'):
        check_model_fn(model_fn, has_params=False)


@pytest.mark.parametrize(
    ('model_fn', 'unexpected'),
    [
        (with_hidden, "['hidden']"),
        (decorated(with_hidden), "['hidden']"),
        (tf.function(with_hidden), "['hidden']"),
        (functools.partial(with_hidden), "['hidden']"),
        (gin_model, "['hidden']"),
        (gin_keyword_only, "['depth']"),
        (Model.build, "['self']"),
        (lambda features, a, b, **more: None, "['a', 'b']"),
    ],
)
def test_a_required_argument_that_nothing_supplies_is_refused(model_fn, unexpected):
    with pytest.raises(ConfigurationError) as error:
        check_model_fn(model_fn, has_params=False)
    assert f'has following not expected args: {unexpected}' in str(error.value)
    assert 'give each a default or bind it in gin' in str(error.value)


def test_a_misspelled_argument_gets_the_nearest_valid_name():
    with pytest.raises(ConfigurationError, match=r"not expected args: \['label'\].*Did you mean `labels`"):
        check_model_fn(lambda features, label, mode: None, has_params=False)


def test_params_that_are_not_accepted_are_refused():
    for model_fn in (lambda features: None, functools.partial(lambda features, params: None, params=1)):
        with pytest.raises(ConfigurationError, match=r'^model_fn \(.*\) does not include params argument, but params'):
            check_model_fn(model_fn, has_params=True)
    check_model_fn(lambda features, params: None, has_params=True)
    check_model_fn(lambda **everything: None, has_params=True)


@pytest.fixture
def warnings(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, 'warning', lambda message, *args: lines.append(message % args))
    return lines


def test_params_that_are_accepted_but_not_given_are_a_warning(warnings):
    check_model_fn(lambda features, params: None, has_params=False)
    assert len(warnings) == 1
    assert 'includes params argument, but params are not passed' in warnings[0]


def test_params_that_are_bound_or_given_are_no_warning(warnings):
    check_model_fn(lambda features, params: None, has_params=False, bound=['params'])
    check_model_fn(lambda features, params: None, has_params=True)
    check_model_fn(functools.partial(lambda features, params: None, params={}), has_params=False)
    assert warnings == []


# call_model_fn.

OFFERED = {'features': 'f', 'labels': 'l', 'mode': EVAL, 'params': {'p': 1}, 'config': 'c'}


def call(model_fn, **changes):
    return call_model_fn(model_fn, **{**OFFERED, **changes})


def recorder(signature):
    """A model_fn `def model_fn(<signature>)` and the dict in which it records its arguments."""
    seen = {}
    scope = {'seen': seen, 'eval_spec': eval_spec}
    exec(f'def model_fn({signature}):\n  seen.update(locals())\n  return eval_spec()', scope)
    return scope['model_fn'], seen


@pytest.mark.parametrize(
    ('signature', 'passed'),
    [
        ('features, labels, mode, params, config', OFFERED),
        ('config, *, labels, features', {name: OFFERED[name] for name in ('features', 'labels', 'config')}),
        ('features, labels, hidden=3', {'features': 'f', 'labels': 'l', 'hidden': 3}),
        ('features, labels, **more', {'features': 'f', 'labels': 'l', 'more': {}}),
        ('**everything', {'everything': OFFERED}),
    ],
)
def test_a_model_fn_gets_by_keyword_what_it_names(signature, passed):
    model_fn, seen = recorder(signature)
    call(model_fn)
    assert seen == passed


def test_a_partial_keeps_what_it_gives():
    model_fn, seen = recorder('size, features, labels, mode, params')
    call(functools.partial(functools.partial(model_fn, 7), mode='mine', params='own'))
    assert seen == {'size': 7, 'features': 'f', 'labels': 'l', 'mode': 'mine', 'params': 'own'}


@pytest.mark.parametrize('model_fn', [Model().build, Model(), decorated(Model().build)])
def test_methods_objects_and_decorated_functions_are_called(model_fn):
    assert call(model_fn).mode == EVAL


def test_params_are_copied_for_each_call():
    params = {'layers': [1]}

    def model_fn(features, labels, params):
        params['layers'].append(2)
        assert params == {'layers': [1, 2]}
        return eval_spec()

    call(model_fn, params=params)
    call(model_fn, params=params)
    assert params == {'layers': [1]}


@pytest.mark.parametrize(
    ('signature', 'params', 'passed'), [('params', None, {}), ('params=7', None, 7), ('params=7', {}, {})]
)
def test_without_params_the_default_holds_else_an_empty_dict(signature, params, passed):
    model_fn, seen = recorder(f'features, labels, {signature}')
    call(model_fn, params=params)
    assert seen['params'] == passed


def test_without_params_a_gin_binding_holds():
    gin.bind_parameter('tests.spec_test_params.params', {'loss': 4.0})
    assert run(call(gin_params, labels=None, params=None).loss) == [4.0]


def test_predict_passes_no_labels():
    seen = []
    call(lambda features, labels: seen.append(labels) or predict_spec(), mode=PREDICT)
    call(lambda features: predict_spec(), mode=PREDICT)
    assert seen == [None]


def test_labels_that_are_not_accepted_are_refused():
    with pytest.raises(ConfigurationError, match=r'^model_fn does not take labels, but input_fn returns labels'):
        call(lambda features: eval_spec())
    assert call(lambda features: eval_spec(), labels=None).mode == EVAL


@pytest.mark.parametrize('result', [None, {'loss': 1}, 3.0, (1, 2)])
def test_a_result_that_is_no_spec_is_refused(result):
    with pytest.raises(ConfigurationError, match=r'^model_fn should return an EstimatorSpec\..*returned \['):
        call(lambda features, labels: result)


def test_a_result_with_as_estimator_spec_is_converted():
    class TPUSpec:
        def as_estimator_spec(self):
            return eval_spec()

    assert isinstance(call(lambda features, labels: TPUSpec()), EstimatorSpec)


def test_a_spec_of_another_mode_is_refused():
    with pytest.raises(ConfigurationError, match=r'of mode \[eval\] when called with mode \[train\]'):
        call(lambda features, labels: eval_spec(), mode=TRAIN)


def test_both_log_lines_are_written(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, 'info', lines.append)
    call(lambda features, labels: eval_spec())
    assert lines == ['Calling model_fn.', 'Done calling model_fn.']


# gin.


@pytest.mark.parametrize('scope', ['', 'train'])
def test_gin_supplies_what_it_binds(scope):
    gin.bind_parameter(f'{scope}/tests.spec_test_model.hidden'.removeprefix('/'), 5)
    with gin.config_scope(scope or None):
        assert run(call(gin_model).loss) == [5.0]


@pytest.mark.parametrize(
    ('model_fn', 'lacking'),
    [
        (gin_model, 'hidden'),
        (gin_keyword_only, 'depth'),
        (gin_required, 'batch'),
        (functools.partial(gin_model), 'hidden'),
    ],
)
def test_what_gin_does_not_supply_is_named_with_a_remedy(model_fn, lacking):
    with pytest.raises(
        ConfigurationError, match=rf'requires `{lacking}`, and neither gin.*Bind it in gin.*{lacking} ='
    ):
        call(model_fn, labels='l' if 'model' in str(model_fn) else None)


def test_what_a_scoped_reference_lacks_is_named():
    gin.parse_config('tests.spec_test_inner.size = @valid/tests.spec_test_model')
    gin.bind_parameter('train/tests.spec_test_model.hidden', 5)
    with pytest.raises(ConfigurationError, match=r'requires `hidden`.*mind the scope'):
        call(inner_model())


@pytest.mark.parametrize('hidden', ['raise', 'inner'])
def test_a_type_error_of_the_users_own_body_passes_unchanged(hidden):
    gin.bind_parameter('tests.spec_test_model.hidden', hidden)
    with pytest.raises(TypeError, match=r'missing 1 required positional argument') as error:
        call(gin_model)
    assert not isinstance(error.value, ConfigurationError)


@pytest.mark.parametrize('error', [TypeError('mine'), RuntimeError('mine'), KeyError('mine')])
def test_an_error_of_a_plain_body_passes_unchanged(error):
    def model_fn(features, labels):
        raise error

    with pytest.raises(type(error)) as raised:
        call(model_fn)
    assert raised.value is error
