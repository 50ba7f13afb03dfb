"""What all three public classes are: readers of a proven directory, safe to fork and to pickle."""

from typing import Any

from shardproof._base.work import Closing, begin_in_forks, close_at_exit
from shardproof.loaders.io._row_source import RowSource
from shardproof.saev import Metadata


class DirectoryReader(Closing):
    """Reads a proven directory; begins anew in each forked process, ends with the interpreter."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._start()

    def _start(self) -> None:
        """Begin without threads, descriptors or memory, as at first, after a fork or a pickle."""
        begin_in_forks(self._start)
        close_at_exit(self)

    def _arguments(self) -> dict[str, object]:
        """Return the keywords with which this could be made again."""
        selection = self._source.selection
        return {"layer": selection.layer, "tokens": selection.tokens}

    def __repr__(self) -> str:
        keywords = (f"{name}={value!r}" for name, value in self._arguments().items())
        return f"{type(self).__name__}({', '.join([repr(self._source.root), *keywords])})"

    @property
    def metadata(self) -> Metadata:
        """What the directory holds."""
        return self._source.selection.metadata

    @property
    def d_model(self) -> int:
        """How many values an activation has."""
        return self.metadata.d_model

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()
