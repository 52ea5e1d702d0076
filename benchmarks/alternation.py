"""What it costs to alternate training and evaluation, beside what others have for that.

    python -m benchmarks.alternation --workload=mlp --contenders=fused,floor,tf_keras_100 --rounds=20 --json=mlp.json

A round is n training steps and one whole evaluation pass. All contenders begin with the same weights and read the same
batches; in every round their losses, metrics and counts have to agree, else the program fails. Rounds of all are
interleaved in an order that changes, so that what else the machine does hits all alike; those that wait use no CPU. The
first rounds, which build and trace, are not measured. CPU milliseconds are those of all threads, and a ratio is that
of the reference (`fused`, else the first contender) to the other in one round: below 1 the reference is cheaper.
`tf.estimator` runs beside it in a process of its own, which measures itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags, logging

import framework  # noqa: F401  (before TensorFlow: it chooses the Keras)
from benchmarks import measuring, networks
from benchmarks.contenders import chosen
from framework import run_dir

_WORKLOAD = flags.DEFINE_enum('workload', 'mlp', list(networks.WORKLOADS), 'What all train.')
_CONTENDERS = flags.DEFINE_list('contenders', ['per_step', 'floor'], f'Who is measured: {", ".join(chosen.NAMES)}.')
_ROUNDS = flags.DEFINE_integer('rounds', 20, 'Rounds of measurement.', lower_bound=1)
_OLD_PYTHON = flags.DEFINE_string(
    'old_python', None, 'The interpreter for `tf.estimator`, see `benchmarks.old_environment`.'
)
_JSON = flags.DEFINE_string('json', None, 'Where the figures go; None: only to the terminal.')


@flags.validator('contenders', message=f'Each must be one of {", ".join(chosen.NAMES)}, and named once.')
def _are_known(names: Sequence[str]) -> bool:
    return bool(names) and set(names) <= set(chosen.NAMES) and len(set(names)) == len(names)


def table(results: Mapping[str, Any]) -> str:
    """Returns the results as text, a line per contender."""
    reference = results['reference']
    lines = [
        f'{results["workload"]}, {results["rounds"]} rounds; ratios: {reference} / contender, with quartiles',
        f'{"":22}{"CPU ms":>9}{"wall ms":>9}{"ratio CPU":>22}{"ratio wall":>22}',
    ]
    for name, figures in results['contenders'].items():
        ratios = ''.join(f'{_ratio(figures[kind]):>22}' for kind in ('ratio_cpu', 'ratio_wall'))
        lines.append(f'{name:22}{figures["cpu_ms"]:9.1f}{figures["wall_ms"]:9.1f}{ratios}')
    return '\n'.join(lines)


def _ratio(spread: Mapping[str, Any]) -> str:
    first, _, third = spread['quartiles']
    return f'{spread["median"]:.2f} ({first:.2f} - {third:.2f})'


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    del argv
    logging.set_verbosity(logging.ERROR)
    names, rounds = _CONTENDERS.value, _ROUNDS.value
    reference = 'fused' if 'fused' in names else names[0]
    contenders = {
        name: chosen.contender(name, _WORKLOAD.value, measuring.WARM_UP + rounds, _OLD_PYTHON.value) for name in names
    }
    costs = measuring.measure(contenders, rounds, reference, chosen.EXACT)
    for contender in contenders.values():
        contender.close()
    results = {
        'workload': _WORKLOAD.value,
        'rounds': rounds,
        'reference': reference,
        'agree': True,  # or `measure` had failed
        'contenders': measuring.summary(costs, reference),
    }
    print(table(results))  # noqa: T201
    if _JSON.value:
        run_dir.write_atomically(_JSON.value, json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
    app.run(main)
