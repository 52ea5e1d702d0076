"""`tf.estimator`, in a process of an environment that still has it; see `benchmarks.old_environment`."""

import json
import os
import pathlib
import subprocess
from typing import Any

from benchmarks.contenders.rounds import Contender, Cost, Figures

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = 'benchmarks.contenders.estimator_process'


class OtherProcess(Contender):
    """Asks a process for round after round; it measures its own cost and rests in between."""

    def __init__(self, python: str, name: str, workload: str, rounds: int):
        """Takes what the process is started with.

        Args:
            python: The interpreter.
            name: `estimator` or `estimator_in_memory`.
            workload: The name of the workload.
            rounds: How many rounds it will be asked for.
        """
        self._command = [python, '-m', _PROGRAM, f'--contender={name}', f'--workload={workload}', f'--rounds={rounds}']
        self._process: subprocess.Popen[str] | None = None

    def round(self) -> Figures:
        """See `Contender`."""
        return self.measured_round()[0]

    def measured_round(self) -> tuple[Figures, Cost]:
        """Makes the next round; the cost is that of the other process."""
        if self._process is None:
            self._process = self._started()
        answer = self._ask(self._process)
        return Figures(**answer['figures']), Cost(**answer['cost'])

    def close(self) -> None:
        """See `Contender`."""
        if self._process is not None:
            self._process.communicate()

    def _started(self) -> 'subprocess.Popen[str]':
        environment = {**os.environ, 'PYTHONPATH': str(_ROOT), 'TF_CPP_MIN_LOG_LEVEL': '2'}
        environment.pop('TF_USE_LEGACY_KERAS', None)  # there the legacy one is the only one
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=environment
        )

    def _ask(self, process: 'subprocess.Popen[str]') -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write('round\n')
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f'`{" ".join(self._command)}` ended [{process.wait()}], and a round was to come.')
        return json.loads(line)
