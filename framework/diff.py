"""The binary `python -m framework.diff A B`: says what differs between two run directories."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import app

from framework import comparison, errors
from framework.main import USAGE_EXIT_CODE, parse_flags

DIFFERENT_EXIT_CODE = 1


def main(argv: Sequence[str]) -> None:
    """Prints the comparison and exits; what `app.run` calls.

    The exit code is 0 where nothing differs, 1 where something does, 2 for a slip in the command line, 3 for a
    directory that holds no run or can't be read.

    Args:
        argv: The program's name, and the two run directories.
    """
    if len(argv) != 3:
        _exit(f'`python -m framework.diff` takes two run directories, not {len(argv) - 1}. Write it as `... A B`.')
    try:
        found = comparison.compare(*argv[1:])
    except errors.FrameworkError as error:
        _exit(str(error), error.exit_code)
    sys.stdout.write(f'A {argv[1]}\nB {argv[2]}\n{found}\n')
    sys.exit(0 if found.equal else DIFFERENT_EXIT_CODE)


def _exit(message: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    sys.stderr.write(f'error: {message}\n')
    sys.exit(code)


if __name__ == '__main__':
    app.run(main, flags_parser=parse_flags)
