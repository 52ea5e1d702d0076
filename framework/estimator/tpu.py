"""`tf.estimator.tpu`: not here yet, each name raises a sentence."""

from typing import Any

from framework.estimator import unbuilt

__all__: list[str] = []


class _Experimental:
    """`tf.estimator.tpu.experimental`, of which there is nothing."""

    def __getattr__(self, name: str) -> Any:
        unbuilt.refuse(name, f'{__name__}.experimental', ())


experimental = _Experimental()


def __getattr__(name: str) -> Any:
    unbuilt.refuse(name, __name__, __all__)
