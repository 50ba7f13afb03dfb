"""What many small files cost, and one large one, from nginx and from the kit's own server.

::

    python benchmarks/prefetch_small.py [--json FILE] [--markdown FILE] [--rounds N] [--only ...]

Both servers run on loopback, in processes of their own; nginx with one worker, files in memory and
a configuration that is made here. Files come to memory, where there is some, each by one thread
and one connection that is kept, where the contender can. Whoever takes part runs in a process of
its own; they take turns, after one round that is not timed. What came is compared by its size, and
removed, outside the clock.
"""

import argparse
import contextlib
import functools
import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from _figures import Ruler, Section, figures, ratio_of
from _races import Command, child, play_or, warm_race
from _report import parser, report
from prefetch import MIB, QUIET, SHM, has_room, hub_of, make_file, versions

N_FILES, SMALL = (1000, 4000), 10_000
NGINX = "/usr/sbin/nginx"
SECTIONS = ("nginx", "kit", "large")


class Job(msgspec.Struct, frozen=True):
    """What a contender is told: the address of a folder, how many files, and the size of each."""

    folder: str
    n_files: int
    size: int
    lookahead: int = 0

    @property
    def names(self) -> list[str]:
        """Names of the files; so many of them are too long for a command line."""
        return [f"{number:05d}.bin" for number in range(self.n_files)]


Run = Callable[[Path], None]


def curl(job: Job) -> Run:
    """One process for all files, and one connection."""

    def run(place: Path) -> None:
        lines = (f'url="{job.folder}/{name}"\noutput="{place / name}"\n' for name in job.names)
        argv = ["curl", "-s", "-S", "-f", "--max-time", "900", "-K", "-"]
        subprocess.run(argv, input="".join(lines), text=True, check=True)

    return run


def httpx_loop(job: Job, read: str = "iter_bytes") -> Run:
    """As one writes it; ``iter_raw`` is the fastest way that httpx has."""
    import httpx  # noqa: PLC0415 - only this child needs it

    client = httpx.Client(timeout=60)

    def run(place: Path) -> None:
        for name in job.names:
            with (
                client.stream("GET", f"{job.folder}/{name}") as response,
                open(place / name, "wb") as file,
            ):
                response.raise_for_status()
                file.writelines(getattr(response, read)())

    return run


def pooch_loop(job: Job) -> Run:
    pooch = importlib.import_module("pooch")  # which has no types
    pooch.get_logger().setLevel("WARNING")

    def run(place: Path) -> None:
        for name in job.names:
            pooch.retrieve(f"{job.folder}/{name}", known_hash=None, fname=name, path=place)

    return run


def ours(job: Job) -> Run:
    from shardproof.fetching import fetch_file, open_source  # noqa: PLC0415

    def run(place: Path) -> None:
        with open_source(job.folder) as source:
            for name in job.names:
                fetch_file(source, name, place / name)

    return run


def prefetcher(job: Job) -> Run:
    from shardproof.fetching import ShardPrefetcher  # noqa: PLC0415

    def run(place: Path) -> None:
        ahead = job.lookahead
        with ShardPrefetcher(job.folder, job.names, place, lookahead=ahead, cleanup="keep") as all_:
            for _ in all_:
                pass

    return run


CONTENDERS: dict[str, Callable[[Job], Run]] = {
    "curl": curl,
    "httpx": httpx_loop,
    "httpx_raw": functools.partial(httpx_loop, read="iter_raw"),
    "pooch": pooch_loop,
    "ours": ours,
    "prefetcher": prefetcher,
}


def play(contender: str, place: str, given: str) -> None:
    """Be a child: say "ready", then fetch all for each line, and print the seconds that it took."""
    job = msgspec.json.decode(given, type=Job)
    run, directory = CONTENDERS[contender](job), Path(place)
    print("ready", flush=True)
    for _ in sys.stdin:
        directory.mkdir(parents=True)
        begin = time.perf_counter()
        run(directory)
        seconds = time.perf_counter() - begin
        came = [path for path in directory.rglob("*.bin") if path.stat().st_size == job.size]
        if len(came) != len(job.names):
            raise SystemExit(f"{contender}: expected {len(job.names)} files, found {len(came)}")
        shutil.rmtree(directory)
        print(seconds, flush=True)


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Run nginx over a folder, on a port that is free; it ends with this context."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = folder.parent / "nginx"
    own.mkdir()
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {own / kind};\n" for kind in temporary)
    (own / "nginx.conf").write_text(
        f"worker_processes 1; daemon off; pid {own / 'pid'}; error_log {own / 'log'};\n"
        "events { worker_connections 256; }\n"
        "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;\n"
        f"{paths}server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    process = subprocess.Popen([NGINX, "-e", own / "log", "-c", own / "nginx.conf"])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(own)


@contextlib.contextmanager
def server(kind: str, folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield its address."""
    if kind == "nginx":
        with nginx(folder) as url:
            yield url
        return
    with hub_of({path.name: path for path in folder.iterdir()}) as url:
        yield f"{url}/data"


def whats(tools: dict[str, tuple[str, int]]) -> tuple[dict[str, tuple[str, int]], str]:
    """Return whoever can take part, and a text that names the others."""
    needs = {"curl": "curl", "pooch": "pooch"}
    there = {
        what: each
        for what, each in tools.items()
        if each[0] not in needs or shutil.which(each[0]) or importlib.util.find_spec(each[0])
    }
    missing = ", ".join(what for what in tools if what not in there)
    return there, f" Not measured, since it is not installed: {missing}." if missing else ""


_OURS, _CURL, _HTTPX = "`fetch_file`", "`curl -K`", "httpx, a loop"
_RAW = "httpx, a loop over `iter_raw()`"
_AHEAD = "`ShardPrefetcher`, `lookahead={}`"


def small(kind: str, options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """Many small files, at two sizes: what a file costs should not grow with their number."""
    for n_files in N_FILES:
        folder = place / str(n_files) / "files"
        folder.mkdir(parents=True)
        for name in Job(folder="", n_files=n_files, size=SMALL).names:
            (folder / name).write_bytes(os.urandom(SMALL))
        tools = {_CURL: ("curl", 0), _HTTPX: ("httpx", 0), "`pooch.retrieve`": ("pooch", 0)}
        tools |= {_OURS: ("ours", 0), **{_AHEAD.format(n): ("prefetcher", n) for n in (0, 1, 8)}}
        there, missing = whats(tools)
        with server(kind, folder) as url:
            commands = [
                of(what, contender, place, Job(url, n_files, SMALL, ahead))
                for what, (contender, ahead) in there.items()
            ]
            rounds = list(warm_race(commands, options.rounds))
        note = f"{SMALL} bytes each; {options.rounds} rounds. Ours proves sizes, and calls fsync."
        section = Section(f"{n_files} small files from {kind}", note + missing, "files/s")
        rates = ([n_files / seconds for seconds in each] for each in rounds)
        section.figures = figures(commands, rates, 1)
        found = {figure.what: figure for figure in section.figures}
        pairs = [(_OURS, _HTTPX, 0.8), (_AHEAD.format(8), _AHEAD.format(0), 1.0)]
        section.rulers = [
            Ruler(f"{kind}, {n_files}: {what} over {beside}", aim, ratio, at_least=True)
            for what, beside, aim in pairs
            if (ratio := ratio_of(found, what, beside)) is not None
        ]
        shutil.rmtree(folder)
        yield section


def large(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """One large file from nginx."""
    size, folder = options.mib * MIB, place / "files"
    folder.mkdir()
    make_file(folder / "00000.bin", size)
    there, missing = whats(
        {_CURL: ("curl", 0), _HTTPX: ("httpx", 0), _RAW: ("httpx_raw", 0)}
        | {"`pooch.retrieve`": ("pooch", 0), _OURS: ("ours", 0)}
    )
    with server("nginx", folder) as url:
        commands = [
            of(what, contender, place, Job(url, 1, size)) for what, (contender, _) in there.items()
        ]
        rounds = list(warm_race(commands, options.rounds))
    note = f"{options.rounds} rounds. Ours computes SHA-256, and calls fsync." + missing
    section = Section(f"{options.mib} MiB from nginx", note, "MB/s")
    rates = ([size / 1e6 / seconds for seconds in each] for each in rounds)
    section.figures = figures(commands, rates, 1)
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler(f"{_OURS} over {beside}", aim, ratio, at_least=True)
        for beside, aim in {_CURL: 0.8, _RAW: 0.9}.items()
        if (ratio := ratio_of(found, _OURS, beside)) is not None
    ]
    yield section


def of(what: str, contender: str, place: Path, job: Job) -> Command:
    directory = place / f"to-{contender}-{job.lookahead}"
    return child(what, contender, directory, msgspec.json.encode(job).decode())


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--mib", type=int, default=1024, help="the large file")
    found.add_argument("--rounds", type=int, default=3)
    return found.parse_args(arguments)


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    in_memory = SHM if has_room(SHM, 3 * options.mib * MIB) else place
    for kind in options.only:
        if kind != "kit" and not os.access(NGINX, os.X_OK):
            yield Section(f"From {kind}", f"Not measured: {NGINX} is not there.", "files/s")
            continue
        with tempfile.TemporaryDirectory(prefix="shardproof-bench-", dir=in_memory) as directory:
            os.chmod(directory, 0o755)  # nginx gives its rights away
            if kind == "large":
                yield from large(options, Path(directory))
            else:
                yield from small(kind, options, Path(directory))


def main() -> None:
    os.environ.update(QUIET)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    report(parse_arguments(), measured, versions())


if __name__ == "__main__":
    play_or(main, play)
