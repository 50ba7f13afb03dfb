"""Which rows of a saev directory are wanted, and where in its files they lie.

A row is one activation. Wanted rows are numbered in the file's order: example, layer, token.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof._base.messages import quoted
from shardproof.saev import Metadata

Framework = Literal["numpy", "torch"]  # of which library the delivered arrays are
LayerChoice = int | Literal["all"]
TokenChoice = Literal["special", "content", "all"]
Rows = npt.NDArray[np.int64]

_TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class Columns(NamedTuple):
    """Example, layer and token of each of some rows."""

    example: Rows
    layer: Rows  # place among the recorded layers
    token: Rows  # place among the recorded tokens


class Selection:
    """The wanted rows of a directory; plain data."""

    def __init__(self, metadata: Metadata, layer: LayerChoice, tokens: TokenChoice) -> None:
        recorded, n_special = metadata.layers, int(metadata.cls_token)
        if layer != "all" and layer not in recorded:
            known = ", ".join(map(str, recorded))
            raise ValueError(f"layer: expected one of {known}, or 'all'; found {quoted(layer)}")
        if tokens == "special" and not n_special:
            raise ValueError("tokens: expected 'content' or 'all', as there is no special token")
        self.metadata, self.layer, self.tokens = metadata, layer, tokens
        # Places of the first wanted layer and token, which the others follow.
        self.first_layer = 0 if layer == "all" else recorded.index(layer)
        self.first_token = n_special if tokens == "content" else 0
        n_content = metadata.content_tokens_per_example
        self.n_layers = len(recorded) if layer == "all" else 1
        self.n_tokens = {"special": 1, "content": n_content, "all": n_special + n_content}[tokens]
        self.rows_per_example = self.n_layers * self.n_tokens
        self.n_rows = metadata.n_examples * self.rows_per_example
        # Numpy has no bfloat16, whose bits come as uint16.
        self.dtype: np.dtype[np.generic] = np.dtype(_TYPES[metadata.dtype]).newbyteorder("<")
        self.row_bytes = metadata.d_model * self.dtype.itemsize
        n_examples, self._all_layers, self._all_tokens, _ = metadata.shard_shape
        self.rows_per_shard = n_examples * self._all_layers * self._all_tokens  # wanted or not

    def place(self, row: int) -> tuple[int, int, int, int]:
        """Return example, layer, token and place in the whole directory of one row."""
        example, rest = divmod(row, self.rows_per_example)
        layer, token = divmod(rest, self.n_tokens)
        layer, token = layer + self.first_layer, token + self.first_token
        place = (example * self._all_layers + layer) * self._all_tokens + token
        return example, layer, token, place

    def columns(self, rows: Rows) -> Columns:
        """Return what some rows are."""
        # Not by `np.divmod`, which takes five times as long as dividing by one number does.
        example = rows // self.rows_per_example
        rest = rows - example * self.rows_per_example
        layer = rest // self.n_tokens
        token = rest - layer * self.n_tokens
        return Columns(example, layer + self.first_layer, token + self.first_token)

    def places(self, rows: Rows) -> Rows:
        """Return the place in the whole directory of each of some rows."""
        column = self.columns(rows)
        layers = column.example * self._all_layers + column.layer
        return layers * self._all_tokens + column.token
