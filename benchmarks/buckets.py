"""What a check of a directory in a bucket costs, beside the requests that it can't do without.

::

    python benchmarks/buckets.py [--objects N] [--rounds N]

moto's S3 server runs in a process of its own, with N arrays of numpy, each of which needs a ranged
read at ``complete``. The limit is s3fs itself: one listing, and one ranged read an object from 64
threads. Limit and check take turns, each in a process of its own that times itself.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BUCKET, FOLDER = "shards", "shards/dir"
READ_BYTES, THREADS = 2**16, 64


def limit(*, reads: bool) -> float:
    import fsspec  # noqa: PLC0415 - only the children need it

    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    begin = time.perf_counter()
    found = fs.find(FOLDER, detail=True)
    if reads:
        with ThreadPoolExecutor(THREADS) as threads:
            sizes = ((path, min(info["size"], READ_BYTES)) for path, info in found.items())
            list(threads.map(lambda each: fs.cat_file(each[0], start=0, end=each[1]), sizes))
    return time.perf_counter() - begin


def check(level: str) -> float:
    import shardproof  # noqa: PLC0415 - only the children need it
    from shardproof.fetching.sources import _fsspec  # noqa: F401, PLC0415 - as s3fs, not timed

    __import__("s3fs")
    begin = time.perf_counter()
    report = shardproof.validate(f"s3://{FOLDER}", level=level)  # type: ignore[arg-type]
    seconds = time.perf_counter() - begin
    assert report.ok, report
    return seconds


CONTENDERS = {
    "one listing": lambda: limit(reads=False),
    "validate, present": lambda: check("present"),
    "one listing, one read an object": lambda: limit(reads=True),
    "validate, complete": lambda: check("complete"),
}


def fill(n_objects: int) -> None:
    import fsspec  # noqa: PLC0415 - the server may not be there yet

    fs, file = fsspec.filesystem("s3"), io.BytesIO()
    np.save(file, np.arange(1000))
    fs.mkdir(BUCKET)
    with ThreadPoolExecutor(THREADS) as threads:
        names = (f"{FOLDER}/{number:06}.npy" for number in range(n_objects))
        list(threads.map(lambda name: fs.pipe_file(name, file.getvalue()), names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--play", choices=[*CONTENDERS], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        print(CONTENDERS[asked.play]())
        return
    port = "5957"
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    command = [sys.executable, "-m", "moto.server", "-p", port]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5)
        fill(asked.objects)
        seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for _round in range(asked.rounds):
            for name, each in seconds.items():
                command = [sys.executable, __file__, "--play", name]
                each.append(float(subprocess.check_output(command)))
    finally:
        server.kill()
        server.wait()
    for name, each in seconds.items():
        print(f"{name:35}{statistics.median(each):8.2f} s")
    for name, floor in (
        ("present", "one listing"),
        ("complete", "one listing, one read an object"),
    ):
        pairs = zip(seconds[f"validate, {name}"], seconds[floor], strict=True)
        print(f"{name}: {statistics.median(ours / theirs for ours, theirs in pairs):.2f} x")


if __name__ == "__main__":
    main()
