"""Records what `tf.estimator` does, in the environment that `benchmarks.old_environment` makes.

python -m benchmarks.old_environment --directory=old
old/bin/python -m benchmarks.reference.record tests/estimator/recorded

`names.json`: every name of `tf.compat.v1.estimator`. `training.json` and `checkpoint/`: the model of `model.py`, its
first checkpoint, 200 steps from there, and the last checkpoint.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import types
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from benchmarks.reference import model


def names(module: Any, prefix: str = '') -> list[str]:
    """Returns the public names of a module and of the modules in it."""
    found: list[str] = []
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if name.startswith('_'):
            continue
        if not isinstance(value, types.ModuleType):
            found.append(f'{prefix}{name}')
        elif 'estimator' in value.__name__:
            found += names(value, f'{prefix}{name}.')
    return found


def training(checkpoint_dir: pathlib.Path) -> dict[str, Any]:
    """Trains the model, keeps its first and its last checkpoint, and returns its numbers."""
    with tempfile.TemporaryDirectory() as directory:
        config = v1.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=1000)
        estimator = v1.estimator.Estimator(model.model_fn_of(v1.estimator), directory, config)
        losses = model.losses(estimator, model.STEPS)
        metrics = model.metrics(estimator)
        variables = v1.train.list_variables(directory)
        scores = [prediction['scores'].tolist() for prediction in estimator.predict(model.eval_input_fn)]
        checkpoint_dir.mkdir(exist_ok=True)
        for name in os.listdir(directory):
            if name.startswith('model.ckpt') and not name.endswith('.meta'):
                shutil.copy(os.path.join(directory, name), checkpoint_dir)
    return {
        'losses': losses,
        'metrics': metrics,
        'variables': {name: list(shape) for name, shape in variables},
        'scores': scores[:8],
    }


def main() -> None:
    """Writes the files."""
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    recorded = {'names.json': names(v1.estimator), 'training.json': training(target / 'checkpoint')}
    for name, content in recorded.items():
        (target / name).write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')
    v1.logging.warning('Recorded with TensorFlow %s: %s.', tf.__version__, ', '.join(recorded))


if __name__ == '__main__':
    main()
