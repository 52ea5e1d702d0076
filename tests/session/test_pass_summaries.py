"""The summaries of a pass: what is written of those that model_fn collected, and nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from tensorboard.plugins.pr_curve import summary as pr_curve
from tensorflow.compat import v1

from framework import EvalSet, Experiment, ModeKeys, RunConfig, errors, testing
from framework.session import pass_summaries

TRAIN, VALID = testing.blobs(37), testing.blobs(13, seed=1)


def model_fn(features, labels, mode, summaries=True):
    """A linear model with dropout in every mode, so that a draw more would be seen."""
    spec = testing.linear_model_fn(tf.nn.dropout(features, rate=0.2), labels, mode)
    if mode == ModeKeys.EVAL and summaries:
        v1.summary.scalar('batch_loss', spec.loss)
        v1.summary.image('picture', tf.reshape(features, [-1, 2, 2, 1]), max_outputs=2)
        v1.summary.histogram('values', features)
        pr_curve.op('curve', labels=labels > 0, predictions=tf.sigmoid(features[:, 0]), num_thresholds=5)
    return spec


TAGS = ['picture/image/0', 'picture/image/1', 'values', 'curve/pr_curves']


def train(directory, model=model_fn, sets=None, **settings):
    """Returns the result, and the values of the event files of `valid` by step and tag."""
    data = testing.array_input_fn(*VALID, 5)
    config = {'save_checkpoints_steps': 4, 'save_checkpoints_secs': None, **settings}
    result = Experiment(
        model_fn=model,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        eval_sets=sets or [EvalSet(name='valid', input_fn=data), EvalSet(name='part', input_fn=data, steps=1)],
        train_steps=6,
        eval_every_steps=3,
        seed=1,
        model_dir=str(directory),
        run_config=RunConfig(**config),
    ).train_and_evaluate()
    return result, {
        (step, tag): v1.Summary.Value.FromString(v) for step, tag, v in testing.event_values(directory / 'eval_valid')
    }


@pytest.mark.parametrize('fuse', ['off', 'require'])
def test_a_pass_has_the_summaries_of_its_first_batch_at_its_step(tmp_path, fuse):
    _, found = train(tmp_path, fuse=fuse)
    metrics = ['accuracy', 'loss', 'loss_per_example']
    assert sorted(found) == sorted((step, tag) for step in (3, 6) for tag in [*TAGS, *metrics])
    histogram = found[3, 'values'].histo
    assert (histogram.num, histogram.sum) == (20, pytest.approx(VALID[0][:5].sum(dtype=np.float64)))
    assert found[6, 'picture/image/1'].image.height == 2
    assert found[6, 'curve/pr_curves'].metadata.plugin_data.plugin_name == 'pr_curves'
    assert 'batch_loss' not in {tag for _, tag in found}


def test_fused_passes_write_the_bits_of_those_batch_by_batch(tmp_path):
    results = [train(tmp_path / fuse, fuse=fuse)[0] for fuse in ('off', 'require')]
    assert repr(results[0].metrics) == repr(results[1].metrics)
    for stream in ('eval_valid', 'eval_part', 'hparams'):
        values = [testing.event_values(tmp_path / fuse / stream) for fuse in ('off', 'require')]
        assert values[0] and values[0] == values[1]


def test_training_and_metrics_have_the_bits_of_a_run_without_summaries(tmp_path):
    def without(features, labels, mode):
        return model_fn(features, labels, mode, summaries=False)

    results = [
        train(tmp_path / 'with')[0],
        train(tmp_path / 'none', eval_summaries=0)[0],
        train(tmp_path / 'without', without)[0],
    ]
    arrays = [testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-6')) for name in ('with', 'none', 'without')]
    assert repr(results[0].metrics) == repr(results[1].metrics) == repr(results[2].metrics)
    for other in arrays[1:]:
        assert all(np.array_equal(value, other[name]) for name, value in arrays[0].items())
    assert not {tag for _, tag, _ in testing.event_values(tmp_path / 'none' / 'eval_valid')} & set(TAGS)


@pytest.fixture
def summary_runs(monkeypatch):
    """Keeps how many batches each run of the session gave summaries for."""
    runs = []
    original = v1.Session.run

    def run(self, fetches, *args, **kwargs):
        names = [getattr(fetch, 'name', '') for fetch in tf.nest.flatten(fetches)]
        runs.append(sum('framework/tower_0/summary/' in name for name in names))
        return original(self, fetches, *args, **kwargs)

    monkeypatch.setattr(v1.Session, 'run', run)
    return runs


def test_summaries_are_computed_once_a_pass_and_once_when_the_sets_are_tried_out(tmp_path, summary_runs):
    train(tmp_path, fuse='off')
    assert sum(summary_runs) == 5  # two sets, two passes each


def test_passes_without_training_compute_none(tmp_path, summary_runs):
    data = testing.array_input_fn(*VALID, 5)
    experiment = Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        eval_sets={'valid': data},
        train_steps=1,
        model_dir=str(tmp_path),
    )
    experiment.train()
    experiment.evaluate()
    assert summary_runs and not any(summary_runs)


@pytest.mark.parametrize('settings', [{'summaries': False}, {'only_scalar': True}])
def test_without_summaries_there_is_nothing_to_compute(make_graph, make_eval_set, settings):
    def model(features, labels, mode):
        if settings.get('only_scalar'):
            v1.summary.scalar('batch_loss', tf.reduce_sum(features))
        return model_fn(features, labels, mode, summaries=False)

    (tower,) = make_graph(model, None, [make_eval_set()]).towers
    assert tower.summary is None


@pytest.mark.parametrize('part', [b'', b'x'])
def test_tags_are_those_of_a_lone_graph_and_scalars_are_left_out(part):
    given = v1.Summary()
    for tag in ('eval/tower_0/a', 'b', 'eval/tower_0/c'):
        given.value.add(tag=tag, image=v1.Summary.Image(encoded_image_string=part))
    given.value.add(tag='eval/tower_0/loss', simple_value=1.0)
    summary, more = pass_summaries.bounded(given.SerializeToString(), 'eval/tower_0/', 2)
    assert [value.tag for value in v1.Summary.FromString(summary).value] == ['a', 'b']
    assert more == ['c']


def test_more_than_a_pass_may_have_is_left_out_and_said_once(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))
    _, found = train(tmp_path, eval_summaries=3)
    assert {tag for step, tag in found if step == 6} == {*TAGS[:3], 'accuracy', 'loss', 'loss_per_example'}
    assert [text for text in warnings if 'summaries' in text] == [
        f'Of the summaries of `{stream}`, 1 a pass are left out, `curve/pr_curves` the first: '
        '`RunConfig.eval_summaries` is [3].'
        for stream in ('valid', 'part')
    ]


def test_a_set_in_a_graph_of_its_own_has_its_summaries_too(tmp_path):
    sets = [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 5))]
    Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        eval_sets=sets,
        train_steps=2,
        model_dir=str(tmp_path),
        evaluation_graph='separate',
    ).train_and_evaluate()
    assert {tag for _, tag, _ in testing.event_values(tmp_path / 'eval_valid')} >= set(TAGS)


def test_a_summary_that_reads_the_training_data_is_left_out_and_said(tmp_path, monkeypatch):
    warnings, of_training = [], []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))

    def leaking(features, labels, mode):
        of_training.append(features)
        if mode == ModeKeys.EVAL:
            v1.summary.histogram('leak', of_training[0])
        return model_fn(features, labels, mode)

    _, found = train(tmp_path / 'leaking', leaking)
    train(tmp_path / 'plain')
    assert {tag for _, tag in found} >= set(TAGS) and 'leak' not in {tag for _, tag in found}
    (text,) = [text for text in warnings if 'is left out' in text]
    assert text.startswith('The summary `eval/tower_0/leak` of evaluation of valid, part is left out: it ')
    arrays = [testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-6')) for name in ('leaking', 'plain')]
    assert all(np.array_equal(value, arrays[1][name]) for name, value in arrays[0].items())


def test_a_fault_in_a_summary_shows_before_the_first_step(tmp_path):
    def faulty(features, labels, mode):
        if mode == ModeKeys.EVAL:
            v1.summary.histogram('faulty', tf.debugging.check_numerics(features / 0.0, 'bad'))
        return testing.linear_model_fn(features, labels, mode)

    with pytest.raises(tf.errors.InvalidArgumentError, match='bad'):
        train(tmp_path, faulty)
    assert not (tmp_path / 'timeline.jsonl').exists()


@pytest.mark.parametrize('value', [-1, 1.5, True, None])
def test_the_number_of_summaries_is_checked(value):
    with pytest.raises(
        errors.ConfigurationError, match=r'`RunConfig.eval_summaries` \[.*\] must be 0 or a positive integer'
    ):
        RunConfig(eval_summaries=value)
