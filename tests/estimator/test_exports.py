"""SavedModels, and the exporters that write them after evaluations."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.core.protobuf import saved_model_pb2

from framework import estimator
from framework.estimator import experimental, export
from tests.estimator.conftest import VALID, eval_fn, train_fn


def receiver_fn():
    features = v1.placeholder(tf.float32, [None, 4], name='x')
    return export.TensorServingInputReceiver(features, features)


def supervised_receiver_fn():
    return experimental.build_raw_supervised_input_receiver_fn(tf.zeros([1, 4]), tf.zeros([1], tf.int64))()


def served(path, features):
    with tf.Graph().as_default(), v1.Session() as session:
        graph = v1.saved_model.load(session, ['serve'], os.fsdecode(path))
        signature = graph.signature_def['serving_default']
        feeds = {signature.inputs['input'].name: features}
        return session.run({name: info.name for name, info in signature.outputs.items()}, feeds)


@pytest.fixture
def trained(make):
    return make().train(train_fn, steps=5)


@pytest.mark.parametrize('method', ['export_saved_model', 'export_savedmodel'])
@pytest.mark.parametrize('as_text', [False, True])
def test_a_saved_model_serves_what_predict_yields(trained, tmp_path, method, as_text):
    path = getattr(trained, method)(tmp_path / 'export', receiver_fn, as_text=as_text)
    assert isinstance(path, bytes)
    name = pathlib.Path(path.decode())
    assert (name.parent, len(name.name), name.name.isdigit()) == (tmp_path / 'export', 10, True)
    assert (name / f'saved_model.pb{"txt" if as_text else ""}').exists()
    predicted = [prediction['class'] for prediction in trained.predict(eval_fn)]
    np.testing.assert_array_equal(served(path, VALID[0])['class'], predicted)


def test_extra_assets_are_copied(trained, tmp_path):
    (tmp_path / 'note.txt').write_text('hello')
    path = trained.export_saved_model(tmp_path, receiver_fn, assets_extra={'a/b.txt': str(tmp_path / 'note.txt')})
    assert (pathlib.Path(path.decode()) / 'assets.extra' / 'a' / 'b.txt').read_text() == 'hello'


def test_an_older_checkpoint_is_exported(make, tmp_path):
    made = make(config=estimator.RunConfig(save_checkpoints_steps=2)).train(train_fn, steps=4)
    path = made.export_saved_model(tmp_path, receiver_fn, checkpoint_path=f'{made.model_dir}/model.ckpt-2')
    assert v1.train.load_variable(f'{path.decode()}/variables/variables', 'global_step') == 2


def test_what_is_missing_is_refused(make, tmp_path):
    with pytest.raises(ValueError, match=r'An input_receiver_fn must be defined\.'):
        make().export_saved_model(tmp_path, None)
    with pytest.raises(ValueError, match=r"Couldn't find trained model at .*/run\."):
        make().export_saved_model(tmp_path, receiver_fn)
    with pytest.raises(ValueError, match=r"No valid modes for exporting found. Got \['x'\]\."):
        make().experimental_export_all_saved_models(tmp_path, {'x': receiver_fn})


def test_a_model_that_is_warm_started_is_exported_from_there(trained, make, tmp_path):
    warm = make(directory='warm', warm_start_from=trained.model_dir)
    path = warm.export_saved_model(tmp_path, receiver_fn)
    predicted = [prediction['class'] for prediction in trained.predict(eval_fn)]
    np.testing.assert_array_equal(served(path, VALID[0])['class'], predicted)


def test_all_modes_lie_in_one_saved_model(trained, tmp_path):
    receivers = {'train': supervised_receiver_fn, 'eval': supervised_receiver_fn, 'infer': receiver_fn}
    path = trained.experimental_export_all_saved_models(tmp_path, receivers)
    tags = {tuple(graph.meta_info_def.tags): set(graph.signature_def) for graph in meta_graphs(path)}
    assert {key: names - {'__saved_model_init_op'} for key, names in tags.items()} == {
        ('train',): {'train'},
        ('eval',): {'eval'},
        ('serve',): {'serving_default'},
    }
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ['eval'], path.decode()).signature_def['eval']
        assert set(signature.inputs) == {'input', 'label'}
        assert set(signature.outputs) == {
            'loss', 'predictions/class', 'metrics/accuracy/value', 'metrics/accuracy/update_op',
        }  # fmt: skip
        assert signature.method_name == 'tensorflow/supervised/eval'
        feeds = dict(zip((signature.inputs['input'].name, signature.inputs['label'].name), VALID, strict=True))
        session.run(signature.outputs['metrics/accuracy/update_op'].name, feeds)
        found = session.run(signature.outputs['metrics/accuracy/value'].name)
    assert found == pytest.approx(trained.evaluate(eval_fn)['accuracy'])


def meta_graphs(path):
    return saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(path.decode()) / 'saved_model.pb').read_bytes()
    ).meta_graphs


def test_eval_alone_is_exported(trained, tmp_path):
    path = trained.export_saved_model(tmp_path, supervised_receiver_fn, experimental_mode='eval')
    assert [list(graph.meta_info_def.tags) for graph in meta_graphs(path)] == [['eval']]


def test_a_supervised_receiver_needs_names_of_its_own():
    with pytest.raises(ValueError, match=r'Features and labels must have distinct keys\. Found overlapping keys'):
        experimental.build_raw_supervised_input_receiver_fn({'x': tf.zeros([1])}, {'x': tf.zeros([1])})


@pytest.mark.parametrize('missing', ['loss', 'predictions'])
def test_an_eval_output_leaves_out_what_is_missing(missing):
    given = {'loss': tf.constant(1.0), 'predictions': {'a': tf.constant(2.0)}, 'metrics': None}
    output = export.EvalOutput(**{**given, missing: None})
    assert set(output.tensors()) == {'loss', 'predictions/a'} - {'loss' if missing == 'loss' else 'predictions/a'}


def test_pain_16_a_predictor_stays_loaded(trained):
    with trained.predictor(receiver_fn) as predictor:
        predicted = [prediction['class'] for prediction in trained.predict(eval_fn)]
        for _ in range(2):
            np.testing.assert_array_equal(predictor(VALID[0])['class'], predicted)


def test_a_predictor_is_fed_like_the_newest_input_fn(make, trained):
    with trained.predictor() as predictor:
        predicted = [prediction['class'] for prediction in trained.predict(eval_fn)]
        np.testing.assert_array_equal(predictor(VALID[0])['class'], predicted)
    with make().predictor(input_fn=eval_fn) as predictor:
        np.testing.assert_array_equal(predictor(VALID[0])['class'], predicted)
    with pytest.raises(ValueError, match='`input_fn` is missing, and a predictor needs it'):
        make().predictor()


# Exporters.


def exported(directory):
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def run(made, exporter, max_steps=12):
    spec = estimator.TrainSpec(train_fn, max_steps)
    return estimator.train_and_evaluate(made, spec, estimator.EvalSpec(eval_fn, exporters=exporter))


def steps_in(directory):
    names = exported(directory)
    return [int(v1.train.load_variable(f'{directory}/{name}/variables/variables', 'global_step')) for name in names]


@pytest.mark.parametrize(
    'exporter, steps',
    [
        (estimator.LatestExporter('it', receiver_fn), [5, 10, 12]),
        (estimator.LatestExporter('it', receiver_fn, exports_to_keep=2), [10, 12]),
        (estimator.FinalExporter('it', receiver_fn), [12]),
        (estimator.BestExporter('it', receiver_fn, monitor='global_step', mode='min'), [5]),
        (estimator.BestExporter('it', receiver_fn, monitor='global_step', mode='max'), [5, 10, 12]),
    ],
)
def test_exporters_export_when_they_should(make, exporter, steps):
    made = make(config=estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    _, results = run(made, exporter)
    directory = f'{made.model_dir}/export/it'
    assert steps_in(directory) == steps
    last = f'{directory}/{exported(directory)[-1]}'
    assert results == [last.encode() if steps[-1] == 12 else None]


def test_the_best_exporter_goes_by_the_loss(make):
    made = make(config=estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    run(made, estimator.BestExporter(serving_input_receiver_fn=receiver_fn))
    best = min(
        ((made.evaluate(eval_fn, checkpoint_path=f'{made.model_dir}/model.ckpt-{n}')['loss']), n) for n in (5, 10, 12)
    )
    assert steps_in(f'{made.model_dir}/export/best_exporter')[-1] == best[1]


def test_only_exports_are_cleaned_up(make, tmp_path):
    made = make(config=estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    other = pathlib.Path(made.model_dir) / 'export' / 'it' / 'mine'
    other.mkdir(parents=True)
    run(made, estimator.LatestExporter('it', receiver_fn, exports_to_keep=1))
    assert len(exported(other.parent)) == 2
    assert other.exists()


@pytest.mark.parametrize(
    'make_exporter, text',
    [
        (
            lambda: estimator.LatestExporter('a', receiver_fn, exports_to_keep=0),
            '`exports_to_keep`, if provided, must be',
        ),
        (
            lambda: estimator.BestExporter('a', receiver_fn, exports_to_keep=0),
            '`exports_to_keep`, if provided, must be',
        ),
        (lambda: estimator.BestExporter('a', receiver_fn, compare_fn=None), '`compare_fn` must not be None.'),
        (
            lambda: estimator.BestExporter('a', receiver_fn, compare_fn=lambda best_eval_result: True),
            r'compare_fn \(.*\) must include current_eval_result argument.',
        ),
        (
            lambda: estimator.BestExporter(
                'a', receiver_fn, compare_fn=lambda best_eval_result, current_eval_result, x: True
            ),
            r"compare_fn \(.*\) has following not expected args: \['x'\]",
        ),
        (lambda: estimator.BestExporter('a', receiver_fn, monitor='auc'), '`BestExporter.mode`'),
    ],
)
def test_exporters_refuse(make_exporter, text):
    with pytest.raises(ValueError, match=text):
        make_exporter()


class Failing(estimator.BestExporter):
    """Fails in its first export."""

    tries = 0

    def _export(self, estimator, export_path, checkpoint_path):
        self.tries += 1
        if self.tries == 1:
            raise OSError('full')
        return checkpoint_path


def test_an_export_that_failed_is_made_again():
    exporter = Failing(serving_input_receiver_fn=receiver_fn)
    arguments = (None, '', 'model.ckpt-1', {'loss': 1.0}, False)
    with pytest.raises(OSError, match='full'):
        exporter.export(*arguments)
    assert exporter.export(*arguments) == 'model.ckpt-1'


def test_pain_46_metrics_without_a_loss_are_named():
    exporter = estimator.BestExporter(serving_input_receiver_fn=receiver_fn)
    exporter.take({'loss': 1.0})
    with pytest.raises(ValueError, match='current_eval_result cannot be empty or no loss is found in it'):
        exporter.export(None, '', '', {'accuracy': 1.0}, False)


def test_pain_47_an_unknown_metric_gets_the_nearest(make):
    exporter = estimator.BestExporter(serving_input_receiver_fn=receiver_fn, monitor='acuracy', mode='max')
    exporter.take({'accuracy': 1.0})
    with pytest.raises(
        ValueError, match=r'`BestExporter.monitor` \[acuracy\]: no such metric. Did you mean `accuracy`'
    ):
        exporter.export(None, '', '', {'accuracy': 1.0}, False)


def test_an_exporter_must_say_what_it_does():
    with pytest.raises(NotImplementedError, match=r'`Exporter\.name` is not implemented'):
        _ = estimator.Exporter().name
