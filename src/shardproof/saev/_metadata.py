"""What a directory's activations are, and how the two files of JSON are read and written."""

import functools
import heapq
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from shardproof._base import json
from shardproof._base.arguments import accepted_fields, checked, count
from shardproof._base.messages import printable, quoted, shown
from shardproof._base.names import real_root
from shardproof._base.opening import is_link, listed_in, refuse_no_path
from shardproof.errors import ManifestNotFoundError
from shardproof.manifest import Count

METADATA_FILE = "metadata.json"
SHARDS_FILE = "shards.json"
LABELS_FILE = "labels.bin"

MAX_COUNT = 2**53  # exact in every JSON reader (RFC 8259, section 6)

Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]

AnyPath = str | os.PathLike[str]

_SHOWN = 20
_MAX_SHARD_BYTES = 2**63 - 1  # off_t
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class Metadata(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What a directory's activations are: ``metadata.json``.

    Attributes:
        family: Family of the transformer, such as ``"clip"``.
        ckpt: Its checkpoint.
        layers: The recorded layers, in the order in which they lie in a shard.
        content_tokens_per_example: Tokens of an example, not counting the special one.
        cls_token: Whether one special token was recorded, before the content tokens.
        d_model: Values of one activation.
        n_examples: Examples in the whole directory.
        max_tokens_per_shard: Budget of tokens, over all layers, for one shard.
        data: Base64 of a pickle that describes the dataset. It stays text: nothing here decodes it,
            since unpickling runs what its author wrote.
        dataset: Root of the original dataset on the machine that wrote the shards.
        pixel_agg: How labels of pixels became labels of tokens.
        dtype: How a value is stored.
        protocol: Version of the protocol.

    Fields of a file that are none of these are kept: `dump` writes them again, and `hash` is that
    of all fields.

    Raises:
        TypeError: A value of another type, or none of those that are known.
        ValueError: A count below 1, layers twice or none, or not one example fits into a shard.

    Example:
        >>> metadata = Metadata(
        ...     family="clip", ckpt="ViT-B-32/openai", layers=(6, 11), n_examples=10,
        ...     content_tokens_per_example=49, cls_token=True, d_model=768,
        ...     max_tokens_per_shard=400, data="", dataset="/data/images",
        ... )
        >>> metadata.shard_shape, metadata.n_shards
        ((4, 2, 50, 768), 3)
    """

    family: str
    ckpt: str
    layers: tuple[int, ...]
    content_tokens_per_example: Positive
    cls_token: bool
    d_model: Positive
    n_examples: Count
    max_tokens_per_shard: Positive
    data: str
    dataset: str
    pixel_agg: Literal["majority", "prefer-fg"] | None = "majority"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    protocol: Literal["1.0.0", "1.1", "2.1"] = "2.1"
    _file: Any = ""
    """The object of the file as text, where it has other fields than these."""

    def __post_init__(self) -> None:
        if isinstance(self.layers, Sequence):
            layers = tuple(count("layers", each, -MAX_COUNT, MAX_COUNT) for each in self.layers)
            msgspec.structs.force_setattr(self, "layers", layers)
        for name, value in accepted_fields(self).items():
            msgspec.structs.force_setattr(self, name, value)
        for name in ("content_tokens_per_example", "d_model", "max_tokens_per_shard"):
            count(name, getattr(self, name), 1, MAX_COUNT)
        count("n_examples", self.n_examples, 0, MAX_COUNT)
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers: expected one or more, none twice, found {self.layers}")
        if self.examples_per_shard < 1:
            needed = self.tokens_per_example * len(self.layers)
            expected = f"expected at least {needed}, the tokens of one example"
            raise ValueError(f"max_tokens_per_shard: {expected}, found {self.max_tokens_per_shard}")
        if self.shard_bytes > _MAX_SHARD_BYTES:
            raise ValueError(f"expected shards below 2**63 bytes, found {self.shard_bytes}")

    @property
    def tokens_per_example(self) -> int:
        """Tokens of an example, with the special one where it was recorded."""
        return self.content_tokens_per_example + self.cls_token

    @property
    def examples_per_shard(self) -> int:
        """How many examples every shard has room for."""
        return self.max_tokens_per_shard // (self.tokens_per_example * len(self.layers))

    @property
    def n_shards(self) -> int:
        """How many shards hold all examples."""
        return -(-self.n_examples // self.examples_per_shard)

    @property
    def has_extra_shard(self) -> bool:
        """Whether saev's writer leaves one more shard with no examples in it.

        It opens the next file as soon as one is full, so it does when the last shard is full.
        """
        return self.n_examples % self.examples_per_shard == 0

    @property
    def shard_shape(self) -> tuple[int, int, int, int]:
        """Shape of every shard: (examples, layers, tokens, d_model)."""
        return self.examples_per_shard, len(self.layers), self.tokens_per_example, self.d_model

    @property
    def shard_bytes(self) -> int:
        """Size of every shard file in bytes."""
        examples, layers, tokens, d_model = self.shard_shape
        return examples * layers * tokens * d_model * _ITEM_BYTES[self.dtype]

    @property
    def labels_bytes(self) -> int:
        """Size of ``labels.bin`` in bytes, where there is one: a uint8 for each content token."""
        return self.n_examples * self.content_tokens_per_example

    @property
    def hash(self) -> str:
        """The first 8 hexadecimal digits of the sha256 that names saev's directory.

        Of the compact JSON in the order of the fields above: saev asks orjson for sorted keys, and
        orjson sorts those of dictionaries, not those of a dataclass.
        """
        import hashlib  # noqa: PLC0415 - takes longer to import than a look at a directory

        text = msgspec.json.format(msgspec.json.encode(self._object()), indent=-1)
        return hashlib.sha256(text).hexdigest()[:8]

    def _object(self) -> Mapping[str, Any]:
        """Return what the file holds: where it was read, in its order, with all its fields."""
        ours = msgspec.structs.asdict(self)
        file = ours.pop("_file")
        return _fields(file) | ours if file else ours

    @classmethod
    @checked
    def load(cls, shards_dir: AnyPath) -> "Metadata":
        """Return what the ``metadata.json`` of a shards directory says.

        Raises:
            ManifestNotFoundError: There is no such directory or file.
            ManifestError: It is not what the protocol describes; the text names line and field.
        """
        refuse_no_path(shards_dir=shards_dir)
        path = os.path.join(real_root(shards_dir), METADATA_FILE)
        data = read_json(*os.path.split(path))
        metadata = msgspec.structs.replace(json.decode(data, cls, path=path), _file="")
        if unknown := _fields(data).keys() - metadata._object().keys():
            _warn_once(path, ", ".join(map(quoted, heapq.nsmallest(_SHOWN, unknown))))
            text = msgspec.json.format(data, indent=-1).decode()
            return msgspec.structs.replace(metadata, _file=text)
        return metadata

    @checked
    def dump(self, shards_dir: AnyPath) -> None:
        """Write ``metadata.json`` into a directory that exists: whole, or not at all.

        Args:
            shards_dir: The directory itself. (saev's own ``dump`` takes its parent.)

        Raises:
            OSError: It could not be written.
        """
        refuse_no_path(shards_dir=shards_dir)
        write_json(self._object(), shards_dir, METADATA_FILE)


def _fields(text: str | bytes) -> dict[str, Any]:
    """Return the fields of an object, each as it is spelled there."""
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


@functools.lru_cache(maxsize=256)
def _warn_once(path: str, unknown: str) -> None:
    # Only the last 256 are remembered: a process may look at any number of directories.
    import logging  # noqa: PLC0415 - few directories have such fields

    logging.getLogger("shardproof.saev").warning(
        "'%s' has fields that are not known here, and are kept: %s", shown(path), printable(unknown)
    )


def write_json(value: Any, shards_dir: AnyPath, name: str) -> None:
    """Write one of the two files, whole or not at all."""
    from shardproof._base import files  # noqa: PLC0415 - whoever only reads needs none of it

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    files.sweep_leftovers(shards_dir)
    files.write_whole(os.path.join(shards_dir, name), text)


def read_json(root: str, name: str) -> bytes:
    """Return the text of one of the two; where it is missing, the error says what is there."""
    try:
        return json.read_bytes(root, name, max_bytes=json.MAX_BYTES)
    except ManifestNotFoundError as error:
        if error.path == root:
            raise
        path = os.path.join(root, name)
        if is_link(path):
            problem = "it is a symbolic link that leads nowhere: mend the link, or restore the file"
            raise ManifestNotFoundError(problem, path=path) from None
        names = sorted(listed_in(root))
        acts = [each for each in names if each.startswith("acts") and each.endswith(".bin")]
        there = [f"{len(acts)} acts*.bin (the first is {quoted(acts[0])})"] if acts else []
        there += [each for each in (SHARDS_FILE, METADATA_FILE, LABELS_FILE) if each in names]
        holds = ", ".join(there) or "no acts*.bin file and no metadata.json"
        advice = _ADVICE[name] if there else "nothing in it looks like saev's: is the path right?"
        problem = f"there is no such file. The directory holds {holds}; {advice}"
        raise ManifestNotFoundError(problem, path=path) from None


_ADVICE = {
    SHARDS_FILE: "saev writes it after each shard, so the directory is half-written, partly purged "
    "or from an older protocol: make the shards again, or restore the file",
    METADATA_FILE: "saev writes it before the first shard, so it was deleted since: restore the "
    "file, or make the shards again",
}
