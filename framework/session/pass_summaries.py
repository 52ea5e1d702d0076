"""The summaries of a pass, as they are told."""

from collections.abc import Sequence

from tensorflow.compat import v1


def bounded(serialized: bytes, prefix: str, most: int) -> tuple[bytes, Sequence[str]]:
    """Returns the summaries of a pass under the tags of a lone graph, and the tags of those that are too many.

    Args:
        serialized: The serialized `Summary` of the first batch.
        prefix: The name scope of the call, with a slash at its end.
        most: How many stay.
    """
    found = v1.Summary.FromString(serialized)
    # Scalars can be among them where model_fn merged summaries itself.
    values = [value for value in found.value if not value.HasField('simple_value')]
    for value in values:
        value.tag = value.tag.removeprefix(prefix)
    return v1.Summary(value=values[:most]).SerializeToString(), [value.tag for value in values[most:]]
