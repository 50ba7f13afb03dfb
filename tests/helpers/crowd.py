"""What processes do in one cache: they read, fetch and remove."""

import random
import threading
import time

from shardproof import FetchError
from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.sources._source import RemoteFile

NAMES = [f"train/{number}.bin" for number in range(3)]


def data_of(name: str, identity: str) -> bytes:
    return f"{name} {identity} ".encode() * 50


def read(cache: Cache, luck: random.Random) -> str:
    """Hold one shard for a moment, and look again and again whether it is there."""
    name, identity = luck.choice(NAMES), luck.choice(["v1", "v1", "v1", "v2"])
    file = RemoteFile(name, len(data_of(name, identity)), identity)
    with cache.hold(name) as lease:
        path = cache.find(file, lease)
        if path is None:
            lease.part.write_bytes(data_of(name, identity))
            with cache.downloading(name, timeout=0.05, stop=threading.Event()):
                try:
                    path = cache.place(lease.part, file, lease)
                except FetchError:
                    return "refused"  # somebody reads another revision
        for _ in range(luck.randrange(1, 20)):
            try:
                if path.read_bytes() != data_of(name, identity):
                    return "lost"
            except FileNotFoundError:
                return "lost"
            time.sleep(0.0005)
    return "read"


def remove(cache: Cache, luck: random.Random) -> str:
    time.sleep(0.001)
    return "removed" if cache.discard(luck.choice(NAMES)) else "kept"
