"""Shards of tokens, or of any numbers, as ``.npy`` files. Those that are there are expected."""

from shardproof._base import digest_lists
from shardproof._base.opening import matching
from shardproof.formats._flat import flat
from shardproof.formats._format import later


def recognizes(path: str) -> bool:
    """Say whether half or more of what is there are such files, not counting lists of digests."""
    n_files = sum(not digest_lists.is_list(name) for name in matching(path, "*"))
    return 0 < n_files <= 2 * len(matching(path, "*.npy"))


FORMAT = flat(
    "npy",
    (".npy",),
    probe="npy",
    prove=later("probes.token_ids", "IdsProof"),
    recognizes=recognizes,
    description="numpy arrays, such as token shards with ids of their sequences",
    complete="the size of each file, as its header implies it",
    valid="the id of each token sequence, if there are ids beside the tokens, as templar writes "
    "them",
    blind_spots="changed numbers without ids; missing files; types with fields or objects",
)
