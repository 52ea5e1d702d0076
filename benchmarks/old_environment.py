"""Makes the environment in which `tf.estimator` still exists, for `--old_python`.

python -m benchmarks.old_environment --directory=old
python -m benchmarks.alternation --contenders=per_step,estimator --old_python=old/bin/python
"""

import pathlib
import subprocess
from collections.abc import Sequence

from absl import app, flags

_PACKAGES = ('tensorflow-cpu==2.15.1', 'tensorflow-estimator==2.15.0', 'pandas', 'scikit-learn')
_DIRECTORY = flags.DEFINE_string('directory', None, 'Where it goes.', required=True)
_PYTHON = flags.DEFINE_string('python', 'python3.11', 'The interpreter: 3.9 to 3.11 have these packages.')


def main(argv: Sequence[str]) -> None:
    """Makes it."""
    del argv
    directory = pathlib.Path(_DIRECTORY.value).absolute()
    subprocess.run([_PYTHON.value, '-m', 'venv', directory], check=True)
    python = directory / 'bin' / 'python'
    subprocess.run([python, '-m', 'pip', 'install', '--quiet', *_PACKAGES], check=True)
    print(python)  # noqa: T201


if __name__ == '__main__':
    app.run(main)
