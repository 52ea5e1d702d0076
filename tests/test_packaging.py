"""What an installation holds, and what the README promises."""

import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import framework

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp('wheel')
    source = directory / 'source'
    left_out = shutil.ignore_patterns('.*', '*.egg-info', 'build', 'runs', '__pycache__')
    shutil.copytree(ROOT, source, ignore=left_out)
    command = [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation', '.', '-w', 'dist']
    subprocess.run(command, cwd=source, check=True, timeout=120)
    (path,) = (source / 'dist').glob('*.whl')
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_framework_and_nothing_else(wheel):
    names = wheel.namelist()
    assert {name.split('/')[0] for name in names if '.dist-info/' not in name} == {'framework'}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / 'framework').rglob('*.py')}
    assert modules <= set(names)
    assert 'framework/py.typed' in names


def test_the_wheel_says_what_it_needs(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
    metadata = wheel.read(name).decode()
    needs = set(re.findall(r'^Requires-Dist: ([A-Za-z0-9_-]+)[^;\n]*$', metadata, re.MULTILINE))
    assert {need.lower().replace('_', '-') for need in needs} == {
        *('absl-py', 'filelock', 'gin-config', 'numpy', 'rich', 'tensorboard', 'tensorflow', 'tf-keras')
    }
    assert f'Version: {framework.__version__}' in metadata
    assert any(name.endswith('/LICENSE') for name in wheel.namelist())


def test_the_public_names_are_sorted_and_all_there():
    assert framework.__all__ == sorted(framework.__all__)
    assert all(hasattr(framework, name) for name in framework.__all__)


def test_importing_the_framework_defines_no_flags():
    # In a process of its own: this one has imported everything already.
    code = (
        'from absl import flags; import framework, framework.main; '
        'print(sorted({"gin_file", "model_dir", "mode"} & set(flags.FLAGS)))'
    )
    command = [sys.executable, '-c', code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.strip() == '[]'
