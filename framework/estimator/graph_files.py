"""`graph.pbtxt` and the `.meta` file beside each checkpoint, for programs that build a graph from them."""

import os
import shutil

from tensorflow.compat import v1

from framework import run_dir
from framework.session import integrity


class GraphFiles(v1.train.CheckpointSaverListener):
    """Writes the graph once a run, and gives each checkpoint a second name of it.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: run_dir.RunDir):
        self._directory = directory
        self._written: str | None = None

    def after_save(self, session: v1.Session, global_step_value: int) -> None:
        """Sees to it that the newest checkpoint has a `.meta` file."""
        checkpoint = v1.train.latest_checkpoint(self._directory.path)
        if checkpoint is None or not integrity.files_of(checkpoint):
            return
        target = f'{checkpoint}.meta'
        if self._written is not None and os.path.exists(self._written):
            if not os.path.exists(target):
                _give_name(self._written, target)
            return
        with session.graph.as_default():
            run_dir.write_atomically(target, _meta_graph(session.graph))
            graph_file = os.path.join(self._directory.path, 'graph.pbtxt')
            run_dir.write_atomically(graph_file, str(session.graph.as_graph_def(add_shapes=True)))
        self._written = target


def _give_name(path: str, name: str) -> None:
    """Gives a file a second name; a copy where the file system has none."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copyfile(path, name)


def _meta_graph(graph: v1.Graph) -> bytes:
    savers = v1.get_collection(v1.GraphKeys.SAVERS)
    saver_def = savers[0].as_saver_def() if savers else None
    return v1.train.export_meta_graph(graph=graph, saver_def=saver_def).SerializeToString()
