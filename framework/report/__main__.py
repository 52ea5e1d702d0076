"""The binary `python -m framework.report RUN_DIR [RUN_DIR ...] [--out=DIR]`: tables, pictures and a page about runs."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import app, flags

from framework import errors, run_dir
from framework.main import USAGE_EXIT_CODE, parse_flags
from framework.report import runs, tables
from framework.reporting.tables import text_table

_PAGE = 'report.html'


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of the binary; call it before the flags are parsed, at most once.

    Args:
        flag_values: Where to define them.
    """
    flags.DEFINE_string('out', 'report', 'The directory of the pictures and the page.', flag_values=flag_values)


def main(argv: Sequence[str]) -> None:
    """Prints the tables, writes the pictures and the page, and exits; what `app.run` calls.

    The exit code is 0, 2 for a slip in the command line or where a package is missing, 3 for a directory that holds no
    run, or can't be read or written.

    Args:
        argv: The program's name, and the directories.
    """
    if len(argv) < 2:
        _exit(
            '`python -m framework.report` takes run directories. Write it as `... RUN_DIR [RUN_DIR ...] [--out=DIR]`.'
        )
    try:
        files = write(argv[1:], flags.FLAGS.out)
    except errors.FrameworkError as error:
        _exit(str(error), error.exit_code)
    sys.stdout.write(f'{files[-1]}\n')
    sys.exit(0)


def write(paths: Sequence[str], out: str) -> list[str]:
    """Prints the tables and writes the report; returns its files, the page last.

    Args:
        paths: Run directories, or directories that hold some.
        out: The directory of the report, which is made where it is missing.

    Raises:
        ConfigurationError: If a package is missing.
        RunDirectoryError: If there is no run, or one can't be read, or the report can't be written.
    """
    try:
        from framework.report import charts, page  # they need packages that training does not
    except ModuleNotFoundError as error:
        if error.name not in ('matplotlib', 'jinja2'):
            raise
        raise errors.ConfigurationError(
            f'`{error.name}` is not installed, and reports need it. Install it: '
            "`pip install 'estimator-framework[plots]'`."
        ) from error
    found = runs.find(paths)
    parts = [('Runs', tables.overview(found)), ('Metrics', tables.metrics(found))]
    if len(found) > 1:
        parts.append(('Bindings that differ', tables.differences(found)))
    for heading, table in parts:
        text = text_table(table.columns, table.lines, table.right) if table.lines else 'None.\n'
        sys.stdout.write(f'{heading}\n{text}\n')
    drawn = charts.draw(found)
    title = found[0].name if len(found) == 1 else f'{len(found)} runs'
    contents = [(chart.file_name, chart.png) for chart in drawn]
    contents.append((_PAGE, page.render(title, parts, drawn).encode()))
    return _written(out, contents)


def _written(out: str, contents: Sequence[tuple[str, bytes]]) -> list[str]:
    files = [os.path.join(out, name) for name, _ in contents]
    try:
        os.makedirs(out, exist_ok=True)
        for file, (_, content) in zip(files, contents, strict=True):
            run_dir.write_atomically(file, content)
    except OSError as error:
        raise errors.RunDirectoryError(
            f"`--out` [{out}] can't be created or written [{error}]. Choose another directory."
        ) from error
    return files


def _exit(message: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    sys.stderr.write(f'error: {message}\n')
    sys.exit(code)


if __name__ == '__main__':
    define_flags()
    app.run(main, flags_parser=parse_flags)
