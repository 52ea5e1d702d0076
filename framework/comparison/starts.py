"""What two runs were started with: configuration and provenance."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from framework import config, errors
from framework.comparison.parts import Difference, Part, flat_differences, text_of
from framework.run_dir import RunDir

# Two runs have two directories, and a run without a seed draws one: that which was used is in the provenance.
_OF_THE_RUN_ITSELF = re.compile(r'(.*[/.])?(Experiment\.(model_dir|resume|seed)|RunConfig\.(model_dir|tf_random_seed))')
_NOT_COMPARED = ('argv', 'start_time', 'git_changed', 'git_untracked', 'git_notes')


def compare(a: RunDir, b: RunDir) -> list[Part]:
    """Compares what two runs were started with."""
    files = {'config.gin': (a.config_file, b.config_file)}
    files['operative_config.gin'] = (a.operative_config_file, b.operative_config_file)
    told = 'versions, seed, machine, code, data'
    return [
        *(_configuration(name, *map(text_of, paths)) for name, paths in files.items()),
        Part('provenance.json', provenance_differences(provenance_of(a), provenance_of(b)), told),
    ]


def _configuration(name: str, *texts: str) -> Part:
    kept = []
    for text in texts:
        found = {**dict.fromkeys(config.imports_in(text), 'there'), **config.bindings_in(text)}
        kept.append({key: value for key, value in found.items() if not _OF_THE_RUN_ITSELF.fullmatch(key)})
    count = len(kept[0].keys() | kept[1].keys())
    return Part(name, flat_differences(*kept), f'{count} imports and bindings')


def provenance_of(run: RunDir) -> dict[str, Any]:
    """Returns the recorded provenance of a run, empty where there is none.

    Args:
        run: The run directory.

    Raises:
        RunDirectoryError: If it can't be read.
    """
    text = text_of(run.provenance_file)
    try:
        return dict(json.loads(text)) if text else {}
    except (TypeError, ValueError) as error:
        raise errors.RunDirectoryError(
            f'`{run.provenance_file}` is damaged [{error}]. Mend it, or remove it.'
        ) from error


def provenance_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Returns what differs between what two runs were started with.

    What only one of them records is left out: an older version recorded less.

    Args:
        a: What `provenance.collect` returned.
        b: The same of the other run.
    """
    found = []
    for name in a:
        if name in b and name not in _NOT_COMPARED:
            found += flat_differences(dict(_flat(name, a[name])), dict(_flat(name, b[name])))
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f'{name}.{key}', item)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for item in value:  # the fingerprints of files
            rest = {key: part for key, part in item.items() if key != 'name'}
            yield f'{name} {item.get("name")}', ', '.join(f'{key} {part}' for key, part in rest.items())
    else:
        yield name, value
