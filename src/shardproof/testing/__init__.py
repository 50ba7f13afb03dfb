"""The kit with which projects prove that their own code survives damaged shards directories.

::

    from shardproof.testing import layout, shards_dir

    with shards_dir(layout(n_shards=3, missing=[1])) as path:
        ...  # path ends in saev/shards/<hash> and lacks acts000001.bin

What builds sample directories here imports nothing else of shardproof: it must not share the code
that it helps to judge.
"""

from shardproof.testing._capabilities import without_root_override
from shardproof.testing._directories import MakeShardsDir, shards_dir, shards_dir_maker
from shardproof.testing._layout import Layout, Shape, ShardState, layout, write_layout

__all__ = [
    "Layout",
    "MakeShardsDir",
    "Shape",
    "ShardState",
    "layout",
    "shards_dir",
    "shards_dir_maker",
    "without_root_override",
    "write_layout",
]
