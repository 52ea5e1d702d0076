"""What differs between two runs: directories made by hand, and two runs that part at a step."""

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import Experiment, RunConfig, comparison, diff, errors, testing

CLOCK = itertools.count()  # no two lines are of one time
CONFIG = 'import a.b\n\n# Parameters for f:\n# ====\nf.text = \\\n    "long"\nf.width = 3\ns/f.width = 4\n'
PROVENANCE = {
    'argv': ['main.py'],
    'start_time': 'now',
    'seed': 1,
    'packages': {'numpy': '2.0'},
    'git_commit': 'c0ffee',
    'git_diff': '',
    'numerics': {'cpu': 'abacus', 'threads': 2},
    'data': {'train': [{'name': 'a.csv', 'size': 3, 'sha256': 'ab'}]},
}


def metric(step: int, stream: str = 'train', **metrics: Any) -> dict[str, Any]:
    return {'step': step, 'stream': stream, 'metrics': metrics, 'time': next(CLOCK)}


def phase(step: int, kind: str = 'commit', **more: Any) -> dict[str, Any]:
    return {'phase': kind, 'step': step, 'secs': next(CLOCK), 'stream': None, 'steps': 0, **more}


METRICS = [metric(10, loss=0.5, steps_per_sec=3.0), metric(10, 'valid', loss=0.6), metric(20, loss=0.4)]
TIMELINE = [phase(10, 'train'), phase(10), phase(20, 'train'), phase(20)]
WEIGHTS = {'w': np.arange(6, dtype=np.float32).reshape(2, 3), 'global_step': np.int64(10)}


def save(directory: pathlib.Path, step: int, values: dict[str, Any]) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.Saver({name: v1.get_variable(name, initializer=value) for name, value in values.items()})
        session.run(v1.global_variables_initializer())
        saver.save(session, str(directory / 'model.ckpt'), global_step=step, write_meta_graph=False)


@pytest.fixture
def pair(tmp_path):
    """Makes two equal run directories, but for what is given for the second."""

    def make(
        config: str = CONFIG,
        provenance: dict[str, Any] | None = None,
        metrics: list[Any] = METRICS,
        timeline: list[Any] = TIMELINE,
        weights: dict[int, dict[str, Any]] | None = None,
        first: dict[str, Any] | None = None,
    ) -> list[pathlib.Path]:
        ours = {'metrics': METRICS, 'timeline': TIMELINE, 'weights': weights and dict.fromkeys(weights, WEIGHTS)}
        for name, values in (
            ('a', {'config': CONFIG, 'provenance': {}, **ours, **(first or {})}),
            ('b', {'config': config, 'provenance': provenance or {}, 'metrics': metrics, 'timeline': timeline}),
        ):
            directory = tmp_path / name
            directory.mkdir()
            for file in ('config.gin', 'operative_config.gin'):
                (directory / file).write_text(values['config'])
            recorded = {**PROVENANCE, 'start_time': name, **values['provenance']}
            (directory / 'provenance.json').write_text(json.dumps(recorded))
            for file in ('metrics', 'timeline'):
                (directory / f'{file}.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in values[file]))
            for step, saved in ((values.get('weights') if name == 'a' else weights) or {}).items():
                save(directory, step, saved)
        return [tmp_path / 'a', tmp_path / 'b']

    return make


def differences(directories: list[pathlib.Path]) -> dict[str, list[str]]:
    parts = comparison.compare(*directories).parts
    return {part.name: [str(difference) for difference in part.differences] for part in parts if part.differences}


def test_runs_that_differ_in_times_and_rates_only_are_equal(pair):
    again = [metric(10, loss=0.5, steps_per_sec=99.0), metric(10, 'valid', loss=0.6), metric(20, loss=0.4)]
    found = comparison.compare(*pair(metrics=again, weights={10: WEIGHTS}))
    assert found.equal and found.first is None
    assert str(found).endswith('No difference.')
    assert 'commits: equal, 1 that both have' in str(found)


def test_bindings_and_imports_that_differ_are_named(pair):
    changed = CONFIG.replace('import a.b', 'import a.c').replace('"long"', '"longer"').replace('s/f.width = 4\n', '')
    found = differences(pair(config=changed))
    assert found['config.gin'] == found['operative_config.gin']
    assert found['config.gin'] == [
        'import a.b: there / not there',
        'f.text: "long" / "longer"',
        's/f.width: 4 / not there',
        'import a.c: not there / there',
    ]


def test_what_two_runs_can_never_share_is_not_compared(pair):
    own = "Experiment.model_dir = 'b'\nExperiment.seed = 3\nx/RunConfig.model_dir = 'b'\n"
    assert differences(pair(config=CONFIG + own)) == {}


def test_long_values_are_shown_from_where_they_differ(pair):
    (found,) = differences(pair(first={'config': f'f.x = {"a" * 500}bc\n'}, config=f'f.x = {"a" * 500}dc\n'))[
        'config.gin'
    ]
    assert found == f'f.x: ...{"a" * 20}bc / ...{"a" * 20}dc'


def test_provenance_differs_in_versions_seed_machine_code_and_data(pair):
    found = differences(
        pair(
            provenance={
                'argv': ['other.py'],
                'seed': 2,
                'packages': {'numpy': '2.1'},
                'git_commit': 'beef',
                'git_diff': '+x',
                'numerics': {'cpu': 'slide rule', 'threads': 2},
                'data': {'train': [{'name': 'a.csv', 'size': 3, 'sha256': 'cd'}]},
                'only_here': 1,
            }
        )
    )
    assert found == {
        'provenance.json': [
            'seed: 1 / 2',
            'packages.numpy: 2.0 / 2.1',
            'git_commit: c0ffee / beef',
            'git_diff: empty / +x',
            'numerics.cpu: abacus / slide rule',
            'data.train a.csv: size 3, sha256 ab / size 3, sha256 cd',
        ]
    }


def test_the_first_line_of_metrics_that_differs_is_named_per_stream(pair):
    changed = [metric(10, loss=0.5, steps_per_sec=3.0), metric(10, 'valid', loss=0.7), metric(20, loss=0.4, extra=1)]
    found = comparison.compare(*pair(metrics=changed))
    assert [str(d) for part in found.parts for d in part.differences] == [
        'step 20, line 2, extra: not there / 1',
        'step 10, line 1, loss: 0.6 / 0.7',
    ]
    assert str(found).endswith('First difference at step 10 (metrics.jsonl, valid); nothing before it to compare.')


def test_a_run_that_goes_on_for_longer_differs_from_there(pair):
    found = comparison.compare(*pair(metrics=[*METRICS, metric(30, loss=0.3)]))
    assert [str(d) for part in found.parts for d in part.differences] == [
        'step 30, line 3: not there / step 30 loss 0.3'
    ]
    assert found.equal_to == 20


def test_half_a_line_of_a_killed_process_is_no_difference(pair):
    directories = pair()
    with open(directories[0] / 'metrics.jsonl', 'a') as file:
        file.write('{"step": 3')
    assert comparison.compare(*directories).equal


def test_runs_of_other_ways_and_equal_values_say_so(pair):
    # a   train 10  commit            train 20  commit
    # b   train 10  commit  train 15  train 20  commit
    found = comparison.compare(*pair(timeline=[*TIMELINE[:2], phase(15, 'train'), *TIMELINE[2:]]))
    assert [str(d) for part in found.parts for d in part.differences] == ['step 15, line 3, step: 20 / 15']
    assert 'The runs go different ways at step 15 (timeline.jsonl); what came out is equal.' in str(found)


# Commits.


def digests(*values: str | None) -> list[dict[str, Any]]:
    return [phase(10 * i, digest=value) for i, value in enumerate(values, start=1)]


def test_the_first_variable_of_the_first_commit_that_differs_is_named(pair):
    moved = {**WEIGHTS, 'w': WEIGHTS['w'] + np.float32([[0, 0, 0.5], [0, 0.25, 0]]), 'x': np.float32(1)}
    found = comparison.compare(*pair(weights={10: WEIGHTS, 20: moved, 100: moved}))
    assert [str(d) for part in found.parts for d in part.differences] == [
        'step 20, variable `w`, the first of 2 that differ of 3, '
        '2 of 6 elements by at most 0.5, first [0, 2]: 2.0 / 2.5'
    ]
    assert found.first[1].step == 20 and found.equal_to == 10


@pytest.mark.parametrize(
    ('values', 'text'),
    [
        (np.zeros([2, 2], np.float32), 'variable `w`: float32[2, 3] / float32[2, 2]'),
        (WEIGHTS['w'].astype(np.float64), 'variable `w`: float32[2, 3] / float64[2, 3]'),
        (WEIGHTS['w'] * np.float32(-1) * np.float32(-1), None),
        (
            np.where(WEIGHTS['w'] == 0, np.float32(-0.0), WEIGHTS['w']),
            '1 of 6 elements by at most 0, first [0, 0]: 0.0',
        ),
        (np.where(WEIGHTS['w'] == 5, np.float32('nan'), WEIGHTS['w']), 'first [1, 2]: 5.0 / nan'),
    ],
)
def test_variables_are_compared_by_shape_dtype_and_bits(pair, values, text):
    found = differences(pair(weights={10: {**WEIGHTS, 'w': values}})).get('commits', [''])[0]
    assert (text or '') in found and bool(found) == bool(text)


@pytest.mark.parametrize('values', [np.float32('nan'), np.array([b'a', b'b']), np.bool_(True)])
def test_variables_of_every_kind_are_equal_to_themselves(pair, values):
    kept = {'w': values}
    assert comparison.compare(*pair(weights={10: kept}, first={'weights': {10: kept}})).equal


def test_texts_that_differ_are_shown(pair):
    weights = [{10: {'w': np.array([b'a', value])}} for value in (b'b', b'c')]
    (found,) = differences(pair(weights=weights[1], first={'weights': weights[0]}))['commits']
    assert found == "step 10, variable `w`, 1 of 2 elements, first [1]: b'b' / b'c'"


def test_digests_tell_of_commits_whose_files_are_gone(pair):
    directories = pair(timeline=digests('a', 'x', 'y'), first={'timeline': digests('a', 'b', 'c')})
    found = comparison.compare(*directories)
    assert differences(directories)['commits'] == ['step 20, digest of the commit: b / x']
    assert found.first[1].step == 20 and found.equal_to == 10


def test_equal_digests_spare_reading_the_files(pair):
    directories = pair(timeline=digests('a'), first={'timeline': digests('a')}, weights={10: WEIGHTS})
    (directories[0] / 'model.ckpt-10.data-00000-of-00001').write_bytes(b'')
    assert comparison.compare(*directories).equal


def test_a_digest_that_only_one_run_wrote_is_no_difference(pair):
    directories = pair(timeline=digests(None, None), first={'timeline': digests('a', 'b')})
    assert comparison.compare(*directories).equal


# The binary.


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        diff.main(['diff', *arguments])
    return (caught.value.code, *capsys.readouterr())


def test_the_exit_code_tells_whether_something_differs(pair, capsys):
    directories = [str(path) for path in pair(metrics=METRICS[:2])]
    code, said, _ = run(capsys, directories[0], directories[0])
    assert code == 0 and 'No difference.' in said
    code, said, _ = run(capsys, *directories)
    assert code == 1 and 'First difference at step 20' in said
    assert said.startswith(f'A {directories[0]}\nB {directories[1]}\n')


def test_slips_are_sentences_with_the_exit_codes_of_the_binary(pair, capsys, tmp_path):
    directory = str(pair()[0])
    (tmp_path / 'empty').mkdir()
    for arguments, code, text in (
        ([directory], 2, 'takes two run directories, not 1'),
        ([directory, str(tmp_path / 'none')], 3, 'none` holds no run. Name a run directory'),
        ([directory, str(tmp_path / 'empty')], 3, 'empty` holds no run'),
        ([directory, 'gs://a/b'], 3, 'is an address'),
    ):
        found, said, error = run(capsys, *arguments)
        assert (found, said) == (code, '') and text in error and error.startswith('error: ')


def test_files_that_are_damaged_are_named(pair):
    directories = pair(weights={10: WEIGHTS})
    (directories[1] / 'model.ckpt-10.index').write_bytes(b'nothing')
    with pytest.raises(errors.RunDirectoryError, match=r"b/model\.ckpt-10` can't be read"):
        comparison.compare(*directories)
    (directories[1] / 'provenance.json').write_text('[')
    with pytest.raises(errors.RunDirectoryError, match=r'b/provenance\.json` is damaged'):
        comparison.compare(*directories)


# Two real runs.


def train(directory: pathlib.Path, changed_step: int | None = None) -> pathlib.Path:
    features, labels = (np.repeat(array, 4, axis=0)[:145] for array in testing.blobs(40))
    if changed_step:
        features[changed_step - 1] += 1  # one draw of one batch
    Experiment(
        model_fn=testing.linear_model_fn,
        train_input_fn=testing.array_input_fn(features, labels, 1),
        train_steps=140,
        seed=1,
        model_dir=str(directory),
        run_config=RunConfig(log_step_count_steps=1, save_checkpoints_steps=50, keep_checkpoint_max=None),
    ).train_and_evaluate()
    return directory


def test_two_runs_that_part_at_step_130_are_told_to_part_there(tmp_path, capsys):
    # step  0    50    100   130 changed  140
    #       C     C     C     |            C differs
    logging.set_verbosity(logging.WARNING)
    a, b, again = train(tmp_path / 'a'), train(tmp_path / 'b', changed_step=130), train(tmp_path / 'again')
    assert run(capsys, str(a), str(again))[0] == 0
    code, said, _ = run(capsys, str(a), str(b))
    assert code == 1
    assert said.endswith('First difference at step 130 (metrics.jsonl, train); equal at step 129.\n')
    assert '  step 140, variable `weights`, 8 of 8 elements by at most ' in said
    assert said.count('\n  ') in (2, 3), 'the metrics, the commit, perhaps its digest'
