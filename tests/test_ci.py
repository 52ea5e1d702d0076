"""The script of CI, on a repository of one file, with tools that do nothing."""

import os
import pathlib
import subprocess

RUN = pathlib.Path(__file__).parents[1] / '.ci' / 'run'
TOOLS = ('pip', 'ruff', 'mypy', 'lint-imports')


def _write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_ci_checks_the_working_tree_without_the_files_that_were_deleted_there(tmp_path):
    for name in ('kept file', 'deleted'):
        _write(tmp_path / name, name)
    for path in ('bin/python3.11', *(f'.venv/bin/{tool}' for tool in TOOLS)):
        _write(tmp_path / path, '#!/bin/sh\n')
    _write(tmp_path / '.ci' / 'run', RUN.read_text())
    _write(tmp_path / 'README.md', 'python3.11 -m venv .venv && ls -A && true pytest\n')
    for command in (['init', '-q'], ['add', '-A']):
        subprocess.run(['git', *command], cwd=tmp_path, check=True)
    (tmp_path / 'deleted').unlink()
    (tmp_path / 'new').touch()
    environment = {**os.environ, 'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}'}
    done = subprocess.run(['.ci/run'], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {'kept file', 'new', '.venv'} <= set(done.stdout.splitlines())
    assert 'deleted' not in done.stdout.splitlines()
