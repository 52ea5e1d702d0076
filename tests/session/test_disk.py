"""A full disk."""

import errno

import pytest
import tensorflow as tf

from framework import errors
from framework.session import disk


@pytest.mark.parametrize(
    'error',
    [
        OSError(errno.ENOSPC, 'No space left on device', 'file'),
        OSError(errno.EDQUOT, 'Disk quota exceeded'),
        tf.errors.ResourceExhaustedError(None, None, 'run/model.ckpt-5; No space left on device'),
        RuntimeError('Flush: No space left on device'),
    ],
)
def test_a_full_disk_is_said_in_a_sentence(error):
    text = r'A disk is full in the run of `runs/a` \[.*\]\. .* the same command goes on'
    with pytest.raises(errors.RunError, match=text), disk.named_when_full('runs/a'):
        raise error


@pytest.mark.parametrize(
    'error', [OSError(errno.EACCES, 'no'), ValueError('x'), tf.errors.ResourceExhaustedError(None, None, 'OOM')]
)
def test_other_errors_are_left_alone(error):
    with pytest.raises(type(error)), disk.named_when_full('runs/a'):
        raise error
