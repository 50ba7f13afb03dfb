"""A proven saev directory, its wanted rows, and what a batch of them is."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypedDict, cast

import numpy as np
import numpy.typing as npt

from shardproof._base.names import real_root
from shardproof._base.opening import refuse_no_path
from shardproof._base.work import apart
from shardproof.checks import check
from shardproof.errors import ShardReadError
from shardproof.loaders.io._memory import Buffer, Contiguous
from shardproof.loaders.io._open_shards import OpenShards, ShardRead
from shardproof.loaders.order._selection import Framework, LayerChoice, Rows, Selection, TokenChoice
from shardproof.manifest import Manifest
from shardproof.report import Report
from shardproof.saev import LABELS_FILE, Metadata, read_manifest

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default, which typing has from Python 3.13 on

    Array = TypeVar("Array", default=Any)
    Framework_co = TypeVar("Framework_co", bound=Framework, covariant=True, default=Framework)
else:
    from typing import TypeVar

    Array, Framework_co = TypeVar("Array"), TypeVar("Framework_co", bound=Framework, covariant=True)

Arrays = npt.NDArray[Any]
UNLABELLED = 255
"""The label of a special token, which has none."""


class Batch(TypedDict, Generic[Array]):
    """Some rows, as arrays of one length; with ``framework="torch"`` as tensors.

    Each is the caller's, and stays as it is when the next batch comes. ``Batch`` alone is of any.
    """

    act: Array
    """Activations, ``[batch, d_model]``: float32, or as the directory has them float16, or the bits
    of bfloat16 as uint16 (as a tensor: bfloat16)."""
    example_idx: Array
    """Which example, int64."""
    token_idx: Array
    """Which content token, int64; -1 for a special one."""
    token_label: NotRequired[Array]
    """Label of the token, uint8, where the directory has labels; 255 for a special one."""
    layer: NotRequired[Array]
    """Which layer, int64, where all were asked for."""


class WholeBatch(dict[str, Any]):
    """A batch that needs no collating, for a collating function that asks for its first sample."""

    def __missing__(self, key: object) -> "WholeBatch":
        if key == 0:
            return self
        raise KeyError(key)


@dataclasses.dataclass(frozen=True, slots=True)
class RowSource:
    """A proven directory and its wanted rows; plain data, so that other processes can have it."""

    # The directory is the same one as long as its ``identity``, device and inode, is.

    root: str
    identity: tuple[int, int]
    names: tuple[str, ...]
    selection: Selection
    labels: npt.NDArray[np.uint8] | None

    def open(self, n_readers: int = 1) -> OpenShards:
        """Return the shards, which the caller reads, by so many threads, and closes."""
        status = os.stat(self.root)
        if (status.st_dev, status.st_ino) != self.identity:
            problem = "another directory is in its place since it was validated"
            raise ShardReadError(problem, path=self.root)
        return OpenShards(self.root, self.names, n_readers)


def open_source(
    path: str | os.PathLike[str], layer: LayerChoice, tokens: TokenChoice, group: object = None
) -> RowSource:
    """Prove a directory at level ``complete`` and return what is to be read of it."""
    refuse_no_path(shards_dir=path)
    manifests = list[Manifest]()

    def run(check: Callable[..., Report]) -> Report:
        manifests.append(read_manifest(real_root(path)))
        return check(manifests[0], level="complete")

    if group is None:
        apart(lambda _: run(check)).raise_for_findings()
    else:
        from shardproof.distributed import check_together  # noqa: PLC0415 - rarely used

        check_together(group, "a loader", run).raise_for_findings()
    return apart(lambda _: _opened(manifests[0], layer, tokens))


def _opened(manifest: Manifest, layer: LayerChoice, tokens: TokenChoice) -> RowSource:
    root = os.fspath(manifest.root)
    names = [file.name for file in manifest.files]
    selection, labels = Selection(Metadata.load(root), layer, tokens), None
    status = os.stat(root)
    if LABELS_FILE in names:
        metadata = selection.metadata
        labels = np.empty((metadata.n_examples, metadata.content_tokens_per_example), np.uint8)
        with contextlib.closing(OpenShards(root, [LABELS_FILE])) as files:
            if labels.size:
                files.read(ShardRead(0, 0, Contiguous(labels.data.cast("B"))))
    shards = tuple(name for name in names if name != LABELS_FILE)
    return RowSource(root, (status.st_dev, status.st_ino), shards, selection, labels)


def batches_of(
    source: RowSource, rows: Rows, buffers: Sequence[Buffer], buffer_rows: int
) -> list[Batch]:
    """Return the batches of some rows, whose activations were read into a buffer each."""
    selection = source.selection
    columns = selection.columns(rows)
    token_idx = columns.token - selection.metadata.cls_token
    found: dict[str, npt.NDArray[Any]] = {"example_idx": columns.example, "token_idx": token_idx}
    if source.labels is not None:
        labels = source.labels[columns.example, np.maximum(token_idx, 0)]
        labels[token_idx < 0] = UNLABELLED
        found["token_label"] = labels
    if selection.layer == "all":
        found["layer"] = np.asarray(selection.metadata.layers, np.int64)[columns.layer]
    batches = []
    for number, buffer in enumerate(buffers):
        start, stop = number * buffer_rows, min((number + 1) * buffer_rows, len(rows))
        own = found
        if len(buffers) > 1:  # copied: who keeps one batch keeps no other
            own = {name: column[start:stop].copy() for name, column in found.items()}
        batches.append(cast("Batch", {"act": buffer.array(stop - start, selection.dtype), **own}))
    return batches
