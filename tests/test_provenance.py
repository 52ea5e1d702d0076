"""Provenance: what a run was started with, which never fails a run."""

import datetime
import hashlib
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one commit, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('GIT_CONFIG_GLOBAL', os.devnull)
    (tmp_path / 'a').write_text('1\n')
    (tmp_path / 'below').mkdir()
    (tmp_path / 'below' / 'b').write_text('1\n')
    for arguments in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'first']):
        subprocess.run(['git', '-c', 'user.name=n', '-c', 'user.email=e', *arguments], check=True)
    return tmp_path


def collect(argv=(), seed=None, **arguments):
    return provenance.collect(argv, seed, **arguments)


def test_provenance_survives_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'data.csv').write_text('1,2\n')
    data = {'train': provenance.fingerprint(['data.csv'])}
    values = collect(('main', '--model_dir=x'), 7, audit=['RandomUniform `a`'], data=data, clock=lambda: 0.0)
    assert json.loads(json.dumps(values)) == values
    assert values['argv'] == ['main', '--model_dir=x'] and values['seed'] == 7
    assert datetime.datetime.fromisoformat(values['start_time']).timestamp() == 0
    assert values['start_time'] == '1970-01-01T00:00:00+00:00'
    assert values['audit'] == ['RandomUniform `a`']
    assert values['data']['train'][0]['name'] == 'data.csv'


def test_provenance_tells_versions_and_what_is_missing(monkeypatch):
    monkeypatch.setattr(provenance, '_PACKAGES', ('filelock', 'no-such-package-here'))
    values = collect()
    assert values['packages']['filelock'] and values['packages']['no-such-package-here'] is None
    assert values['python'] == '.'.join(map(str, sys.version_info[:3]))
    assert values['tensorflow']['version'] == tf.__version__
    assert values['tensorflow']['cuda'] == tf.test.is_built_with_cuda()


def test_provenance_holds_the_environment_of_tensorflow_only(monkeypatch):
    changes = {'TF_X': '1', 'OMP_NUM_THREADS': '2', 'CUDA_VISIBLE_DEVICES': '', 'TF_TOKEN_x': 's', 'MY_KEY': 's'}
    monkeypatch.setattr(os, 'environ', os.environ | changes)
    environment = collect()['environment']
    assert environment['TF_X'] == '1' and environment['OMP_NUM_THREADS'] == '2'
    assert environment['CUDA_VISIBLE_DEVICES'] == ''
    assert 'TF_TOKEN_x' not in environment and 'MY_KEY' not in environment


def test_provenance_holds_no_path_that_the_user_did_not_write(checkout, monkeypatch):
    monkeypatch.setattr(os, 'environ', {'PATH': os.environ['PATH']})
    (checkout / 'new').write_text('')
    values = collect(['/somewhere/framework/main.py', '--model_dir=runs/x'])
    assert values['argv'] == ['main.py', '--model_dir=runs/x']
    assert str(checkout) not in json.dumps(values)
    monkeypatch.setattr(sys, 'orig_argv', ['python', '/somewhere/main.py'])
    assert collect(['/somewhere/main.py'])['argv'] == ['/somewhere/main.py']


# Numerics: a part of a run's identity.


def test_numerics_tell_what_decides_how_numbers_are_rounded(monkeypatch):
    monkeypatch.setenv('TF_ENABLE_ONEDNN_OPTS', '0')
    config = v1.ConfigProto(intra_op_parallelism_threads=3)
    values = provenance.numerics(config, op_determinism=True)
    assert values['onednn'] == '0' and values['op_determinism'] is True
    assert values['intra_op_threads'] == 3 and values['inter_op_threads'] == len(os.sched_getaffinity(0))
    assert values['tensorflow'].startswith(tf.__version__)
    assert values['cpu'] and values['machine']
    assert collect(session_config=config, op_determinism=True)['numerics'] == values


def test_threads_that_only_the_environment_sets_are_told(monkeypatch):
    monkeypatch.setenv('TF_NUM_INTEROP_THREADS', '5')
    monkeypatch.setenv('TF_NUM_INTRAOP_THREADS', 'many')
    values = provenance.numerics()
    assert (values['inter_op_threads'], values['intra_op_threads']) == (5, len(os.sched_getaffinity(0)))


def test_a_machine_that_does_not_describe_its_processor_fails_nothing(monkeypatch):
    monkeypatch.setattr(provenance, '_cpu_info', dict)
    monkeypatch.setattr(provenance.platform, 'processor', lambda: '')
    values = provenance.numerics()
    assert values['cpu'] is None and values['cpu_features'] is None


def test_a_driver_that_is_broken_fails_nothing(monkeypatch):
    def fail(kind):
        raise RuntimeError(f'no driver for {kind}')

    monkeypatch.setattr(tf.config, 'list_physical_devices', fail)
    assert provenance.numerics()['gpus'] == []


# The code.


def test_provenance_names_the_commit_and_whether_files_changed(checkout):
    clean = collect()
    (checkout / 'a').write_text('22\n')
    changed = collect()
    assert len(clean['git_commit']) == 40 and clean['git_changed'] is False and clean['git_diff'] == ''
    assert changed['git_changed'] is True
    assert '-1\n+22\n' in changed['git_diff'] and changed['git_notes'] == []


def test_provenance_lists_untracked_files_but_ignored_ones(checkout):
    (checkout / '.gitignore').write_text('*.log\n')
    for name in ('x.log', 'new.py', 'below/größe.py'):
        (checkout / name).write_text('')
    assert sorted(collect()['git_untracked']) == ['.gitignore', 'below/größe.py', 'new.py']


def test_the_code_is_told_alike_from_every_folder_of_the_checkout(checkout, monkeypatch):
    (checkout / 'a').write_text('22\n')
    (checkout / 'new').write_text('')
    above = provenance._git_facts()
    monkeypatch.chdir(checkout / 'below')
    assert provenance._git_facts() == above


def test_a_long_diff_and_a_long_list_are_cut_and_say_so(checkout, monkeypatch):
    monkeypatch.setattr(provenance, '_MOST_DIFF', 100)
    monkeypatch.setattr(provenance, '_MOST_UNTRACKED', 2)
    (checkout / 'a').write_text('line\n' * 1000)
    for name in 'xyz':
        (checkout / name).write_text('')
    values = collect()
    assert len(values['git_diff']) == 100 and len(values['git_untracked']) == 2
    assert values['git_notes'] == ['the diff is cut after 100 bytes', 'of 3 untracked files the first 2']


def test_a_diff_that_is_no_text_fails_nothing(checkout):
    (checkout / 'a').write_bytes(b'caf\xe9\n')
    values = collect()
    assert 'caf\ufffd' in values['git_diff']
    assert json.loads(json.dumps(values)) == values


def test_settings_of_the_users_git_change_nothing(checkout):
    (checkout / 'a').write_text('22\n')
    plain = collect()['git_diff']
    for name, value in (('color.ui', 'always'), ('diff.external', 'false')):
        subprocess.run(['git', 'config', name, value], check=True)
    assert collect()['git_diff'] == plain


@pytest.mark.parametrize('case', ['no git', 'no checkout', 'slow', 'no working directory'])
def test_provenance_needs_no_git(case, tmp_path, monkeypatch):
    monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path.parent))
    (tmp_path / 'gone').mkdir()
    monkeypatch.chdir(tmp_path / 'gone')
    if case == 'no git':
        monkeypatch.setenv('PATH', str(tmp_path))
    if case == 'slow':
        monkeypatch.setattr(provenance, '_GIT_SECS', 0)
    if case == 'no working directory':
        (tmp_path / 'gone').rmdir()
    values = collect()
    assert values['git_commit'] is None and values['git_changed'] is None and values['git_diff'] is None
    assert values['git_notes'] == [f'no git, no checkout, or no answer within {provenance._GIT_SECS} s']


def test_a_checkout_without_a_commit_fails_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(['git', 'init', '-q'], check=True)
    (tmp_path / 'new').write_text('')
    values = collect()
    assert values['git_commit'] is None and values['git_untracked'] == ['new']


# The data.


def test_a_fingerprint_is_the_content_of_small_files_and_the_time_of_large_ones(tmp_path):
    (tmp_path / 'small').write_bytes(b'1234')
    (tmp_path / 'large').write_bytes(b'12345')
    os.utime(tmp_path / 'large', (100, 200))
    assert provenance.fingerprint([tmp_path / 'small', tmp_path / 'large'], limit_bytes=4) == [
        {'name': 'small', 'size': 4, 'sha256': hashlib.sha256(b'1234').hexdigest()},
        {'name': 'large', 'size': 5, 'mtime': 200.0},
    ]


def test_many_files_are_hashed_up_to_a_sum(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, '_HASHED_BYTES', 10)
    for name in 'abc':
        (tmp_path / name).write_bytes(b'12345')
    found = provenance.fingerprint([tmp_path / name for name in 'abc'])
    assert ['sha256' in entry for entry in found] == [True, True, False]


def test_a_fingerprint_is_the_same_wherever_the_data_lies(tmp_path, monkeypatch):
    for place in ('here', 'there'):
        for name in ('train/a', 'valid/a'):
            path = tmp_path / place / name
            path.parent.mkdir(parents=True)
            path.write_text(name)
    here, there = (
        provenance.fingerprint([tmp_path / place / name for name in ('train/a', 'valid/a')])
        for place in ('here', 'there')
    )
    monkeypatch.chdir(tmp_path / 'here')
    assert here == there == provenance.fingerprint(['train/a', 'valid/a'])
    assert [entry['name'] for entry in here] == ['train/a', 'valid/a']


def test_a_file_that_cannot_be_read_fails_nothing(tmp_path):
    (tmp_path / 'folder').mkdir()
    assert provenance.fingerprint([tmp_path / 'folder', tmp_path / 'none']) == [
        {'name': 'folder', 'error': 'Is a directory'},
        {'name': 'none', 'error': 'No such file or directory'},
    ]
    assert provenance.fingerprint([]) == []
