"""Goes on with `tf.estimator` from a checkpoint that `framework.estimator` wrote: `old/bin/python -m ... DIR`.

Prints a JSON object: the metrics of the newest checkpoint, and the step after 10 more steps of training.
"""

import json
import sys

from tensorflow.compat import v1

from benchmarks.reference import model


def main() -> None:
    """Evaluates, trains on, and prints what came of it."""
    estimator = v1.estimator.Estimator(model.model_fn_of(v1.estimator), sys.argv[1])
    metrics = model.metrics(estimator)
    estimator.train(model.train_input_fn, steps=10)
    step = int(estimator.get_variable_value('global_step'))
    sys.stdout.write(json.dumps({'metrics': metrics, 'step': step}) + '\n')


if __name__ == '__main__':
    main()
