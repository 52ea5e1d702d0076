"""The diabetes experiment through the binary: in seconds, and (slow) the figure that its README promises."""

import json
import logging
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.compat import v1

from experiments.diabetes import data, model
from framework import Experiment, config, main

GIN = pathlib.Path(__file__).parents[2] / 'gin_configs' / 'diabetes'
EPOCH = 9  # steps
# Another program, which knows neither the framework nor the experiment.
SERVE = """
import sys
import numpy as np
import tensorflow as tf

serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']
fed = {name: tf.constant(values) for name, values in np.load(sys.argv[2]).items()}
np.save(sys.argv[3], serve(**fed)['progression'].numpy())
"""


def run(gin_file: str, directory: pathlib.Path, *arguments: str) -> dict:
    """Runs the binary in this process and returns `result.json`."""
    config.clear()
    values = flags.FlagValues()
    main.define_flags(values)
    values(['main', f'--gin_file={GIN / gin_file}', f'--model_dir={directory}', *arguments])
    assert main.run(values) == 0
    return json.loads((directory / 'result.json').read_text())


def passes(directory: pathlib.Path) -> list[tuple[int, str, dict]]:
    rows = [json.loads(line) for line in (directory / 'metrics.jsonl').read_text().splitlines()]
    return [(row['step'], row['stream'], row['metrics']) for row in rows if row['stream'] != 'train']


def experiment(directory: pathlib.Path) -> Experiment:
    config.clear()
    config.load([str(GIN / 'smoke.gin')], [])
    return config.build('Experiment', model_dir=str(directory))


def exported(directory: pathlib.Path) -> str:
    """Returns the one SavedModel in `export/best/`."""
    (path,) = (directory / 'export' / 'best').iterdir()
    assert path.name.isdigit()
    return str(path)


def predicted(directory: pathlib.Path) -> np.ndarray:
    """Returns the predictions of the binary for test, with the best weights."""
    output = directory / 'test.npz'
    run('smoke.gin', directory, '--mode=predict', '--sets=test', '--checkpoint=best', f'--output={output}')
    with np.load(output) as arrays:
        return arrays['progression']


def served(directory: pathlib.Path, features: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the predictions of the exported model, made by TensorFlow 2 in a process of its own."""
    given, made = directory / 'features.npz', directory / 'served.npy'
    np.savez(given, **features)
    subprocess.run([sys.executable, '-c', SERVE, exported(directory), given, made], cwd=directory, check=True)
    return np.load(made)


def metrics_of(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    labels, errors = labels.astype(np.float64), labels - predictions.astype(np.float64)
    unexplained = np.sum(errors**2) / np.sum((labels - labels.mean()) ** 2)
    return {'mae': np.mean(np.abs(errors)), 'rmse': np.sqrt(np.mean(errors**2)), 'r2': 1 - unexplained}


@pytest.fixture(scope='module')
def smoke(tmp_path_factory):
    directory = tmp_path_factory.mktemp('diabetes')
    run('smoke.gin', directory)
    return directory


def test_smoke_gin_stops_by_itself_in_seconds(smoke):
    result = json.loads((smoke / 'result.json').read_text())

    assert (result['status'], result['global_step']) == ('stopped', 3 * EPOCH)
    assert result['stop_reason'].startswith('early stopping: `valid/rmse` was no better than')
    assert result['best']['step'] == EPOCH
    assert result['timing']['total'] < 15


def test_test_is_evaluated_once_and_with_the_best_weights(smoke):
    # step    9           18      27
    # valid   E (best)    E       E, and again with the weights of step 9
    # test                        E
    made = passes(smoke)

    assert [(step, stream) for step, stream, _ in made if stream == 'test'] == [(3 * EPOCH, 'test')]
    assert sorted({step for step, stream, _ in made if stream == 'valid'}) == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    best = next(metrics for step, stream, metrics in made if (step, stream) == (EPOCH, 'valid'))
    assert json.loads((smoke / 'result.json').read_text())['metrics']['valid'] == best


def test_metrics_are_those_of_numpy_over_all_patients_for_the_predictions_of_the_best_weights(smoke):
    expected = metrics_of(data.load_split('test')[1], predicted(smoke))
    at_the_end = json.loads((smoke / 'result.json').read_text())['metrics']['test']
    run('smoke.gin', smoke, '--mode=evaluate', '--sets=test', '--checkpoint=best')
    (evaluated,) = map(json.loads, (smoke / 'evaluations.jsonl').read_text().splitlines())

    assert evaluated['step'] == EPOCH
    for name, value in expected.items():
        np.testing.assert_allclose([at_the_end[name], evaluated['metrics'][name]], value, rtol=1e-5)


def test_the_predictor_and_predictions_agree_with_the_file_of_predictions(smoke):
    expected = predicted(smoke)
    with experiment(smoke).predictor(checkpoint='best') as predictor:
        given = predictor(data.load_split('test')[0])['progression']
        assert predictor.step == EPOCH
    batches = [batch['progression'] for batch in experiment(smoke).predictions('test', checkpoint='best')]

    assert expected.shape == (80,)
    assert [len(batch) for batch in batches] == [32, 32, 16]
    np.testing.assert_array_equal(np.concatenate(batches), expected)
    np.testing.assert_allclose(given, expected, rtol=1e-6)  # in one batch: other kernels may round otherwise


def test_the_exported_best_model_predicts_the_same_in_a_session_for_patients_in_any_number(smoke):
    features, _ = data.load_split('test')
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ['serve'], exported(smoke)).signature_def['serving_default']
        placeholders = {name: signature.inputs[name].name for name in features}
        given, first = (
            session.run(
                signature.outputs['progression'].name, {placeholders[name]: features[name][:n] for name in features}
            )
            for n in (80, 1)
        )

    assert sorted(signature.inputs) == sorted(features)
    np.testing.assert_allclose(given, predicted(smoke), rtol=1e-6)
    np.testing.assert_allclose(first, given[:1], rtol=1e-6)


def test_the_exported_best_model_predicts_the_same_in_another_program(smoke):
    np.testing.assert_allclose(served(smoke, data.load_split('test')[0]), predicted(smoke), rtol=1e-6)


def test_describe_shows_both_sets_in_one_tower_and_the_variable_of_the_cross(smoke, capsys):
    run('smoke.gin', smoke, '--mode=describe')
    told = capsys.readouterr().out

    assert 'input_layer/age_bucketized_X_sex_embedding/embedding_weights' in told
    assert told.count('tower_0') == 2


def test_deprecation_notices_stay_out_of_the_log_only_where_columns_are_built():
    told = []

    class Recorder(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())

    logger, recorder = tf.get_logger(), Recorder()
    logger.addHandler(recorder)
    try:
        for place in (model.quiet_deprecations(), tf.Graph().as_default()):
            with place:
                logger.warning('`x` is deprecated and will be removed in a future version.')
                logger.warning('Something else.')
    finally:
        logger.removeHandler(recorder)
    assert told == ['Something else.', '`x` is deprecated and will be removed in a future version.', 'Something else.']


@pytest.mark.slow
def test_mean_test_rmse_of_three_seeds_is_far_below_that_of_the_mean_of_train(tmp_path):
    labels = data.load_split('test')[1]
    guess = metrics_of(labels, np.full(80, data.training_statistics()['progression'].mean))['rmse']
    figures, seconds = [], []
    for seed in (1, 2, 3):
        start = time.monotonic()
        directory = tmp_path / str(seed)
        result = run('base.gin', directory, f'--gin_param=Experiment.seed = {seed}')
        seconds.append(time.monotonic() - start)
        assert result['stop_reason'].startswith('early stopping'), result['stop_reason']
        assert result['best']['step'] < result['global_step'] < 500 * EPOCH
        figures.append(result['metrics']['test']['rmse'])
        of_the_export = metrics_of(labels, served(directory, data.load_split('test')[0]))
        np.testing.assert_allclose(of_the_export['rmse'], figures[-1], rtol=1e-5)
    assert 82 < guess < 83
    assert np.mean(figures) <= 54, figures
    assert max(seconds) < 60, seconds
