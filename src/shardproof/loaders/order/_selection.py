"""Which rows of a saev directory are wanted, and where in its files they lie.

A row is one activation. Wanted rows are numbered in the file's order: example, layer, token.
"""

import dataclasses
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof._base.messages import quoted
from shardproof.saev import Metadata

LayerChoice = int | Literal["all"]
TokenChoice = Literal["special", "content", "all"]
Rows = npt.NDArray[np.int64]

_TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class Columns(NamedTuple):
    """Example, layer and token of each of some rows."""

    example: Rows
    layer: Rows  # place among the recorded layers
    token: Rows  # place among the recorded tokens


@dataclasses.dataclass(frozen=True)
class Selection:
    """The wanted rows of a directory."""

    metadata: Metadata
    layer: LayerChoice
    tokens: TokenChoice

    def __post_init__(self) -> None:
        recorded = self.metadata.layers
        if self.layer != "all" and self.layer not in recorded:
            known = ", ".join(map(str, recorded))
            raise ValueError(
                f"layer: expected one of {known}, or 'all'; found {quoted(self.layer)}"
            )
        if self.tokens == "special" and not self.metadata.cls_token:
            raise ValueError("tokens: expected 'content' or 'all', as there is no special token")

    @cached_property
    def n_layers(self) -> int:
        """How many layers are wanted."""
        return len(self.metadata.layers) if self.layer == "all" else 1

    @cached_property
    def first_layer(self) -> int:
        """Place of the first wanted layer; the others follow it."""
        return 0 if self.layer == "all" else self.metadata.layers.index(self.layer)

    @cached_property
    def n_tokens(self) -> int:
        """How many tokens of an example are wanted."""
        if self.tokens == "special":
            return 1
        return self.metadata.content_tokens_per_example + (
            self.metadata.cls_token and self.tokens == "all"
        )

    @cached_property
    def first_token(self) -> int:
        """Place of the first wanted token; the others follow it."""
        return int(self.metadata.cls_token and self.tokens == "content")

    @cached_property
    def rows_per_example(self) -> int:
        """How many rows of an example are wanted."""
        return self.n_layers * self.n_tokens

    @cached_property
    def n_rows(self) -> int:
        """How many rows are wanted."""
        return self.metadata.n_examples * self.rows_per_example

    @cached_property
    def dtype(self) -> "np.dtype[np.generic]":
        """Type of a value; numpy has no bfloat16, whose bits come as uint16."""
        return np.dtype(_TYPES[self.metadata.dtype]).newbyteorder("<")

    @cached_property
    def row_bytes(self) -> int:
        """Size of a row."""
        return self.metadata.d_model * self.dtype.itemsize

    @cached_property
    def rows_per_shard(self) -> int:
        """How many rows, wanted or not, a shard has room for."""
        examples, layers, tokens, _ = self.metadata.shard_shape
        return examples * layers * tokens

    def place(self, row: int) -> tuple[int, int, int, int]:
        """Return example, layer, token and place in the whole directory of one row."""
        example, rest = divmod(row, self.rows_per_example)
        layer, token = divmod(rest, self.n_tokens)
        layer, token = layer + self.first_layer, token + self.first_token
        _, layers, tokens, _ = self.metadata.shard_shape
        return example, layer, token, (example * layers + layer) * tokens + token

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
        _, layers, tokens, _ = self.metadata.shard_shape
        column = self.columns(rows)
        return (column.example * layers + column.layer) * tokens + column.token
