"""What a run was started with: facts about the command, the software, the machine, the code and the data.

Nothing here fails a run: what can't be found out is None. Paths are those that the user wrote, or relative ones, so
that two runs in two places tell the same.
"""

import contextlib
import datetime
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

_PACKAGES = (
    *('tensorflow', 'tensorflow-cpu', 'tf-keras', 'keras', 'numpy', 'gin-config', 'absl-py', 'protobuf'),
    *('tensorboard', 'estimator-framework'),
)
# Terraform's variables start with TF_ too, and may hold credentials.
_ENVIRONMENT = re.compile(r'TF_(?!CLI_|TOKEN_|VAR_).*|OMP_.*|CUDA_VISIBLE_DEVICES')
_VECTOR_FEATURE = re.compile(r'avx\w*|fma\w*|amx\w*|sse4_\d|asimd\w*|sve\w*')
# What decides how ops are rewritten or chosen, beside the session's configuration.
_ROUNDING = ('TF_XLA_FLAGS', 'XLA_FLAGS', 'TF_DETERMINISTIC_OPS', 'TF_CUDNN_DETERMINISTIC', 'NVIDIA_TF32_OVERRIDE')
_GIT_SECS = 5
_MOST_DIFF = 2**20
_MOST_UNTRACKED = 1000
_HASHED_FILE = 2**28
_HASHED_BYTES = 2**29  # of all files of a stream together

Fingerprint = list[dict[str, Any]]


def collect(
    argv: Sequence[str],
    seed: int | None,
    *,
    session_config: v1.ConfigProto | None = None,
    op_determinism: bool | None = None,
    audit: Sequence[str] = (),
    data: Mapping[str, Fingerprint] | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """Returns what a run was started with, as plain values for JSON.

    Args:
        argv: The command line.
        seed: The seed of the run.
        session_config: The configuration of its session.
        op_determinism: Whether ops are deterministic, None where nobody knows.
        audit: What was found that stands in the way of the same bits.
        data: What each stream reads: by its name what `fingerprint` returned.
        clock: Returns the time in seconds since the epoch.
    """
    return {
        'argv': [_as_written(word) if i == 0 else word for i, word in enumerate(argv)],
        'start_time': datetime.datetime.fromtimestamp(clock(), datetime.UTC).isoformat(),
        'seed': seed,
        'python': platform.python_version(),
        'platform': platform.platform(),
        'tensorflow': _tensorflow_build(),
        'packages': {name: _version(name) for name in _PACKAGES},
        'cpu_count': _usable_cpus(),
        'numerics': numerics(session_config, op_determinism),
        'environment': {k: v for k, v in sorted(os.environ.items()) if _ENVIRONMENT.fullmatch(k)},
        'audit': list(audit),
        'data': dict(data or {}),
        **_git_facts(),
    }


def numerics(session_config: v1.ConfigProto | None = None, op_determinism: bool | None = None) -> dict[str, Any]:
    """Returns what decides how the numbers of a run are rounded, as far as it lies outside of its graph.

    Args:
        session_config: The configuration of the session.
        op_determinism: Whether ops are deterministic, None where nobody knows.
    """
    given = session_config or v1.ConfigProto()
    return {
        **machine_numerics(),
        'op_determinism': op_determinism,
        'intra_op_threads': _threads(given.intra_op_parallelism_threads, 'TF_NUM_INTRAOP_THREADS'),
        'inter_op_threads': _threads(given.inter_op_parallelism_threads, 'TF_NUM_INTEROP_THREADS'),
        'graph_options': hashlib.sha256(given.graph_options.SerializeToString(deterministic=True)).hexdigest()[:16],
        'flags': {name: os.environ[name] for name in _ROUNDING if name in os.environ},
    }


def machine_numerics() -> dict[str, Any]:
    """Returns the part of `numerics` that no setting of the run changes."""
    return {
        'tensorflow': f'{tf.version.VERSION} {tf.version.GIT_VERSION}',
        'onednn': os.environ.get('TF_ENABLE_ONEDNN_OPTS'),  # None: as TensorFlow decides for the processor
        'machine': platform.machine(),
        'cpu': _cpu_model(),
        'cpu_features': _cpu_features(),
        'gpus': _gpus(),
    }


def fingerprint(files: Iterable[str | os.PathLike[str]], limit_bytes: int = _HASHED_FILE) -> Fingerprint:
    """Returns what tells whether files are the same as another time: `[{name, size, sha256}]`, in their order.

    Files above the limit, and those after 512 MiB in all, have `mtime` (seconds since the epoch) in place of `sha256`;
    one that can't be read has `name` and `error`. Names are relative to the folder that holds all of the files.

    Args:
        files: Their paths.
        limit_bytes: The size of the largest file whose content is read.
    """
    paths = [os.path.abspath(path) for path in files]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ''
    found, left = [], _HASHED_BYTES
    for path in paths:
        entry = _fingerprint(path, os.path.relpath(path, folder), min(limit_bytes, left))
        left -= entry['size'] if 'sha256' in entry else 0
        found.append(entry)
    return found


def _fingerprint(path: str, name: str, limit_bytes: int) -> dict[str, Any]:
    try:
        known = os.stat(path)
        entry = {'name': name, 'size': known.st_size}
        if known.st_size > limit_bytes:
            return {**entry, 'mtime': known.st_mtime}
        with open(path, 'rb') as file:
            return {**entry, 'sha256': hashlib.file_digest(file, 'sha256').hexdigest()}
    except (OSError, ValueError) as error:
        return {'name': name, 'error': getattr(error, 'strerror', None) or type(error).__name__}


def _as_written(program: str) -> str:
    """Returns the program without the folder that `python -m` puts before it."""
    return program if program in sys.orig_argv else os.path.basename(program)


def _tensorflow_build() -> dict[str, Any]:
    build = tf.sysconfig.get_build_info()
    return {
        'version': tf.version.VERSION,
        'git_version': tf.version.GIT_VERSION,
        'compiler': tf.version.COMPILER_VERSION,
        'cuda': bool(build.get('is_cuda_build')),
        'cuda_version': build.get('cuda_version'),
        'cudnn_version': build.get('cudnn_version'),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _threads(given: int, variable: str) -> int:
    """Returns the number of threads that TensorFlow takes: as given, as the environment says, or one a processor."""
    said = os.environ.get(variable, '')
    return given or (int(said) if said.isdecimal() else 0) or _usable_cpus()


def _usable_cpus() -> int:
    with contextlib.suppress(AttributeError, OSError):  # only Linux knows which ones a process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _cpu_info() -> Mapping[str, str]:
    """Returns what Linux says about its first processor; empty elsewhere."""
    try:
        text = pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8', errors='replace')
    except OSError:
        return {}
    lines = (line.split(':', 1) for line in text.partition('\n\n')[0].splitlines() if ':' in line)
    return {name.strip(): value.strip() for name, value in lines}


def _cpu_model() -> str | None:
    # Under a hypervisor the name alone says little.
    info = _cpu_info()
    name = info.get('model name') or info.get('CPU part') or platform.processor() or None
    if name is None or 'cpu family' not in info:
        return name
    return f'{name}, family {info["cpu family"]}, model {info.get("model")}'


def _cpu_features() -> str | None:
    """Returns the vector instructions, by which libraries choose their kernels."""
    info = _cpu_info()
    words = (info.get('flags') or info.get('Features') or '').split()
    return ' '.join(sorted(word for word in words if _VECTOR_FEATURE.fullmatch(word))) or None


def _gpus() -> list[str]:
    with contextlib.suppress(tf.errors.OpError, RuntimeError, ValueError):  # of a driver that is not as it should be
        devices = tf.config.list_physical_devices('GPU')
        return [str(tf.config.experimental.get_device_details(device).get('device_name')) for device in devices]
    return []


def _git_facts() -> dict[str, Any]:
    """Returns the commit of the checkout around the working directory, and what in it is not committed."""
    git = _Git()
    if not git.in_checkout:
        facts = dict.fromkeys(('git_commit', 'git_changed', 'git_untracked', 'git_diff'))
        return {**facts, 'git_notes': [f'no git, no checkout, or no answer within {_GIT_SECS} s']}
    notes = []
    commit = git.ask('rev-parse', '--verify', 'HEAD')
    diff = git.ask('diff', 'HEAD', '--no-ext-diff', '--no-textconv', '--no-color', most=_MOST_DIFF + 1)
    if diff is not None and len(diff) > _MOST_DIFF:
        diff = diff[:_MOST_DIFF]
        notes.append(f'the diff is cut after {_MOST_DIFF} bytes')
    untracked = git.ask('ls-files', '--others', '--exclude-standard', '-z')
    names = None if untracked is None else [_text(name) for name in untracked.split(b'\0') if name]
    if names is not None and len(names) > _MOST_UNTRACKED:
        notes.append(f'of {len(names)} untracked files the first {_MOST_UNTRACKED}')
        names = names[:_MOST_UNTRACKED]
    return {
        'git_commit': None if commit is None else _text(commit).strip(),
        'git_changed': None if diff is None else bool(diff),
        'git_untracked': names,
        'git_diff': None if diff is None else _text(diff),
        'git_notes': notes,
    }


class _Git:
    """Asks git about the checkout around the working directory, for a few seconds in all.

    A run must start without git, outside a checkout, and on a slow file system.
    """

    def __init__(self) -> None:
        self._deadline = time.monotonic() + _GIT_SECS
        root = self._run('rev-parse', '--show-toplevel', most=None)
        self._root = None if root is None else os.fsdecode(root).removesuffix('\n')

    @property
    def in_checkout(self) -> bool:
        return bool(self._root)

    def ask(self, *args: str, most: int | None = None) -> bytes | None:
        """Returns what git says in the root of the checkout, `most` bytes of it, or None where it fails."""
        return self._run('-C', self._root or '', *args, most=most)

    def _run(self, *args: str, most: int | None) -> bytes | None:
        with contextlib.suppress(OSError, subprocess.SubprocessError), tempfile.TemporaryFile() as said:
            subprocess.run(
                ['git', *args],
                stdin=subprocess.DEVNULL,
                stdout=said,  # into a file, for a diff may be larger than memory
                stderr=subprocess.DEVNULL,
                env={**os.environ, 'GIT_OPTIONAL_LOCKS': '0'},  # a user's own git may be at work
                timeout=max(self._deadline - time.monotonic(), 0),
                check=True,
            )
            said.seek(0)
            return said.read(-1 if most is None else most)
        return None


def _text(said: bytes) -> str:
    return said.decode('utf-8', errors='replace')
