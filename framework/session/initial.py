"""What a session without a checkpoint begins with: the initial values of the model, or a warm start."""

import contextlib
from collections.abc import Callable

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework.reporting import tables
from framework.session import warm_start
from framework.warm_start import WarmStartSettings


def prepare(
    settings: WarmStartSettings | None, graph: tf.Graph, scaffold: v1.train.Scaffold
) -> Callable[[v1.Session], None]:
    """Returns what gives the variables of a session their values.

    Args:
        settings: What to load of another checkpoint, None for nothing.
        graph: The graph.
        scaffold: Its Scaffold, not finalized yet.
    """
    prepared = None if settings is None else warm_start.prepare(settings, graph, scaffold)
    if prepared is not None:
        logging.info('Warm start from %s:\n%s', prepared.checkpoint, tables.warm_start_table(prepared.rows))

    def initialise(session: v1.Session) -> None:
        with contextlib.nullcontext() if prepared is None else prepared.explained():
            session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
            if prepared is not None:
                prepared.hook.after_create_session(session, None)
            if scaffold.init_fn is not None:
                scaffold.init_fn(session)

    return initialise
