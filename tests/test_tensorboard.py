"""What TensorBoard finds in the directory of a run, by its own readers, and in a browser."""

import json
import pathlib
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.custom_scalar import custom_scalars_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.plugins.text import text_plugin

from framework import Experiment, config, errors, main, testing

ROOT = pathlib.Path(__file__).parents[1]
METRICS = ('accuracy', 'loss', 'loss_per_example')
STATUSES = [api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING]


def train_digits(directory, *bindings, others=()):
    """Runs the small configuration of digits through the binary, with bindings and with other flags."""
    config.clear()
    values = flags.FlagValues()
    main.define_flags(values)
    given = [f'--gin_param={binding}' for binding in bindings]
    values(['main', f'--gin_file={ROOT}/gin_configs/digits/smoke.gin', f'--model_dir={directory}', *given, *others])
    with mock.patch.object(sys, 'argv', ['main', '--gin_param=a = 1']):
        assert main.run(values) == 0


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    """The directory of a finished run, in one of its own."""
    directory = tmp_path_factory.mktemp('runs') / 'digits'
    train_digits(directory)
    return directory


class Reader:
    """TensorBoard's backends, on a directory."""

    def __init__(self, logdir):
        self.multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={'text': 100})
        self.multiplexer.AddRunsFromDirectory(str(logdir))
        self.multiplexer.Reload()
        provider = data_provider.MultiplexerDataProvider(self.multiplexer, str(logdir))
        self.context = base_plugin.TBContext(data_provider=provider, multiplexer=self.multiplexer, logdir=str(logdir))
        self.request = context.RequestContext()

    @property
    def charts(self):
        """The patterns of the charts of custom scalars, by title."""
        layout = custom_scalars_plugin.CustomScalarsPlugin(self.context).layout_impl(self.request, '')
        (category,) = json.loads(layout)['category']
        return {chart['title']: chart['multiline']['tag'] for chart in category['chart']}

    def lines(self, run, pattern):
        """The points `(step, value)` of a chart's lines of a run, by tag."""
        plugin = custom_scalars_plugin.CustomScalarsPlugin(self.context)
        plugin._get_scalars_plugin = lambda: _Scalars(self.context)
        found = plugin.scalars_impl(self.request, run, pattern, '')['tag_to_events']
        return {tag: [(step, value) for _, step, value in points] for tag, points in found.items()}

    def text(self, run, name):
        """The steps and the rendered values of a text."""
        plugin = text_plugin.TextPlugin(self.context)
        found = plugin.text_impl(self.request, run, f'run/{name}', '', enable_markdown=True)
        return [(value['step'], value['text']) for value in found]

    def session(self):
        """The one session of the dashboard of hyperparameters: their values, the metrics, the status."""
        backend = backend_context.Context(self.context)
        asked = api_pb2.ListSessionGroupsRequest(
            start_index=0, slice_size=10, allowed_statuses=STATUSES, include_metrics=True
        )
        (group,) = list_session_groups.Handler(self.request, backend, '', asked).run().session_groups
        (session,) = group.sessions
        hparams = {name: getattr(value, value.WhichOneof('kind')) for name, value in group.hparams.items()}
        return hparams, {value.name.tag: value.value for value in session.metric_values}, session.status


def _Scalars(of):  # noqa: N802
    from tensorboard.plugins.scalar import scalars_plugin

    return scalars_plugin.ScalarsPlugin(of)


@pytest.fixture(scope='module', params=['', 'digits'])
def found(request, digits):
    """The reader and the name of the run, in the directory above the run's and in its own."""
    own = request.param == ''
    return Reader(digits if own else digits.parent), (lambda name: name or '.') if own else _below


def _below(name):
    return f'digits/{name}'.rstrip('/')


def test_there_is_a_chart_a_metric_with_lines_of_training_and_of_every_set(found):
    reader, run = found
    assert reader.charts == {name: [f'^{name}$'] for name in METRICS}
    for name, (pattern,) in reader.charts.items():
        for stream in ('eval_valid', 'eval_test'):
            lines = reader.lines(run(stream), pattern)
            assert list(lines) == [name] and [step for step, _ in lines[name]] == [3, 6]
    assert [step for step, _ in reader.lines(run(''), '^loss$')['loss']] == [1, 2, 4, 6]


def test_hyperparameters_metrics_and_status_are_those_of_the_run(found):
    reader, _ = found
    hparams, metrics, status = reader.session()
    assert status == api_pb2.STATUS_SUCCESS
    assert metrics.keys() == {f'{stream}/{name}' for stream in ('valid', 'test') for name in METRICS}
    assert hparams['Experiment.train_steps'] == 6 and hparams['Experiment.seed'] == 1  # the first by a macro
    assert hparams['digits.model_fn.hidden'] == 16 and hparams['digits.model_fn.filters'] == '(4, 8)'
    assert hparams['Experiment.model_fn'] == '@digits.model_fn' and hparams['valid/digits.input_fn.split'] == 'valid'


@pytest.mark.parametrize(
    ('name', 'part'),
    [
        ('configuration', 'TRAIN_STEPS = 6'),
        ('command', "main '--gin_param=a = 1'"),
        ('parameters', 'batch_normalization/gamma'),
    ],
)
def test_texts_say_what_the_run_is(found, name, part):
    reader, run = found
    ((step, text),) = reader.text(run(''), name)
    assert step == 0 and '<pre><code>' in text and part in text


def test_the_graph_is_there_once_and_small(found):
    reader, run = found
    nodes = {node.name: node for node in reader.multiplexer.Graph(run('')).node}
    assert nodes['conv2d/Conv2D'].op == 'Conv2D'
    assert max(node.ByteSize() for node in nodes.values() if node.op == 'Const') < 2000


def test_a_run_that_goes_on_says_nothing_twice_and_what_has_changed_anew(tmp_path):
    train_digits(tmp_path)
    train_digits(tmp_path, 'Experiment.train_steps = 8')
    reader = Reader(tmp_path)
    hparams, metrics, status = reader.session()
    assert status == api_pb2.STATUS_SUCCESS and hparams['Experiment.train_steps'] == 6
    assert [step for step, _ in reader.lines('eval_valid', '^loss$')['loss']] == [3, 6, 8]
    assert metrics['valid/loss'] == pytest.approx(reader.lines('eval_valid', '^loss$')['loss'][-1][1])
    assert [step for step, _ in reader.text('.', 'parameters')] == [0]
    assert [step for step, _ in reader.text('.', 'configuration')] == [0, 6]
    tags = [tag for path in ('.', 'hparams') for _, tag, _ in testing.event_values(tmp_path / path, everything=True)]
    assert tags.count('custom_scalars__config__') == 1
    assert tags.count('_hparams_/session_start_info') == tags.count('_hparams_/session_end_info') == 1


def experiment(directory, model_fn=testing.linear_model_fn, **settings):
    return Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(*testing.blobs(20), 4),
        eval_sets={'valid': testing.array_input_fn(*testing.blobs(10), 4)},
        train_steps=4,
        model_dir=str(directory),
        **settings,
    )


def test_params_are_hyperparameters_and_a_drawn_seed_too(tmp_path):
    def model_fn(features, labels, mode, params):
        return testing.linear_model_fn(features, labels, mode, params['rate'])

    experiment(tmp_path, model_fn, params={'rate': 0.5, 'name': 'x', 'layers': [1, 2]}).train_and_evaluate()
    hparams, _, _ = Reader(tmp_path).session()
    assert hparams.pop('Experiment.seed') >= 0
    assert hparams == {'params.rate': 0.5, 'params.name': 'x', 'params.layers': '[1, 2]'}


def test_a_run_that_fails_is_told_as_that(tmp_path):
    hook = testing.RecordingHook(after_run=lambda context: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        experiment(tmp_path, train_hooks=[hook]).train_and_evaluate()
    assert Reader(tmp_path).session()[2] == api_pb2.STATUS_FAILURE


def test_events_that_somebody_removes_end_the_run_with_a_sentence(tmp_path):
    def remove(context):
        for path in tmp_path.glob('events*'):
            path.unlink()

    with pytest.raises(
        errors.RunError, match=r'events.*was removed while the run wrote to it, and what it told is lost'
    ):
        experiment(tmp_path, train_hooks=[testing.RecordingHook(after_run=remove)]).train_and_evaluate()
    result = json.loads((tmp_path / 'result.json').read_text())
    assert result['status'] == 'failed' and 'was removed' in result['stop_reason']


def test_a_disk_that_is_full_of_events_ends_the_run_with_a_sentence(tmp_path):
    def full(path, make=tf.io.TFRecordWriter):
        return make(path if '/hparams/' in path else '/dev/full')

    with mock.patch.object(tf.io, 'TFRecordWriter', full), pytest.raises(errors.RunError, match='A disk is full'):
        experiment(tmp_path).train_and_evaluate()
    assert json.loads((tmp_path / 'result.json').read_text())['status'] == 'failed'
    assert experiment(tmp_path).train_and_evaluate().status == 'done'
    assert Reader(tmp_path).session()[2] == api_pb2.STATUS_SUCCESS


def test_the_profile_lies_where_tensorboard_looks(tmp_path):
    train_digits(tmp_path, others=['--profile_steps=2:4'])
    (path,) = (tmp_path / 'plugins' / 'profile').glob('*/*.xplane.pb')
    assert b'Conv2D' in path.read_bytes()
