"""What it costs to fetch whole and proven shards, and to have the next one there in time.

::

    python benchmarks/prefetch.py [--json FILE] [--markdown FILE] [--rounds N] [--only SECTION]

The server is the kit's hub, in a process of its own, on loopback. Every contender runs in a process
of its own and times itself; within a section they take turns (A B C A B C ...), after one round
that is not timed. Size and SHA-256 of whatever came are looked at outside the clock, and so is what
came removed. Before each run, as much memory as it will fill is written and freed: virtual machines
fetch memory back from their host when it is touched, which is slow, and hits whoever comes first.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from _figures import Figure, Ruler, Section, figures, ratio_of
from _races import Command, child, warm_race
from _report import machine, parser, report

HERE = Path(__file__).resolve().parent
MIB = 2**20
RATE, LATENCY = 20e6, 0.05  # bytes a second on each connection; seconds before each answer
RANGES_MIB, CONNECTIONS = 256, (1, 2, 4, 8)
N_SHARDS, SHARD_MIB = 10, 8
REPO = "bench/shards"
SHM = Path("/dev/shm")
SECTIONS = ("loopback", "ranges", "lookahead", "memory")


class Job(msgspec.Struct, frozen=True):
    """What a contender is told.

    Attributes:
        endpoint: Where the hub is; plain files are in its folder ``data``.
        names: What is to be fetched.
        digests: SHA-256 of each, in hexadecimal.
        size: Bytes of each.
        connections: Most connections for one file; None for ours to choose.
        lookahead: Shards ahead of the reader.
        compute: Seconds that the reader takes for each shard.
    """

    endpoint: str
    names: list[str]
    digests: list[str]
    size: int
    connections: int | None = None
    lookahead: int = 1
    compute: float = 0.0

    @property
    def folder(self) -> str:
        """The address of the folder."""
        return f"{self.endpoint}/data"

    @property
    def url(self) -> str:
        """The address of the first file."""
        return f"{self.folder}/{self.names[0]}"


Run = Callable[[Path], Path | None]
"""Fetches to a fresh directory, and is timed; returns the file, unless it has proven all itself."""


# Contenders: each is prepared with a job, and returns what is timed.


def curl(job: Job, then_sync: bool = False) -> Run:
    def run(place: Path) -> Path:
        target = place / job.names[0]
        # What is not in the usual command says what went wrong, and ends what hangs.
        argv = ["curl", "-s", "-S", "-f", "--max-time", "900", "-o", os.fspath(target), job.url]
        subprocess.run(argv, check=True)
        if then_sync:
            sync(target)
        return target

    return run


def ours(job: Job) -> Run:
    """With what a script does around it: a source is opened, and closed."""
    from shardproof.fetching import Limits, fetch_file, open_source  # noqa: PLC0415

    limits = Limits(connections=job.connections) if job.connections else Limits()
    name, digest = job.names[0], f"sha256:{job.digests[0]}"

    def run(place: Path) -> Path:
        with open_source(job.folder) as source:
            fetched = fetch_file(source, name, place / name, digest=digest, limits=limits)
        if fetched.n_attempts != 1 or not fetched.proven:
            raise SystemExit(f"it took {fetched.n_attempts} attempts: no figure")
        return fetched.path

    return run


def hf_hub_download(job: Job) -> Run:
    import huggingface_hub  # noqa: PLC0415 - only this child needs it

    def run(place: Path) -> Path:
        path = huggingface_hub.hf_hub_download(
            REPO,
            job.names[0],
            repo_type="dataset",
            endpoint=job.endpoint,
            cache_dir=place / "cache",
            token=False,
        )
        return Path(path)

    return run


def pooch_retrieve(job: Job) -> Run:
    pooch = importlib.import_module("pooch")  # which has no types
    pooch.get_logger().setLevel("WARNING")
    known_hash = f"sha256:{job.digests[0]}"

    def run(place: Path) -> Path:
        fname = job.names[0]
        return Path(pooch.retrieve(job.url, known_hash=known_hash, fname=fname, path=place))

    return run


def httpx_loop(job: Job) -> Run:
    """As one writes it."""
    download = httpx_download()

    def run(place: Path) -> Path:
        target = place / job.names[0]
        download(job.url, target)
        return target

    return run


def httpx_download() -> Callable[[str, Path], None]:
    import httpx  # noqa: PLC0415

    client = httpx.Client(timeout=60)

    def download(url: str, target: Path) -> None:
        with client.stream("GET", url) as response, open(target, "wb") as file:
            response.raise_for_status()
            file.writelines(response.iter_bytes())

    return download


def prefetcher(job: Job) -> Run:
    from shardproof.fetching import Limits, ShardPrefetcher  # noqa: PLC0415

    limits = Limits(connections=job.connections) if job.connections else Limits()

    def run(place: Path) -> None:
        with ShardPrefetcher(
            job.folder, job.names, place, lookahead=job.lookahead, cleanup="auto", limits=limits
        ) as shards:
            for path, digest in zip(shards, job.digests, strict=True):
                compute(path, digest, job)
            if shards.stats.n_retries or shards.stats.n_failures:
                raise SystemExit("there were retries: no figure")

    return run


def download_then_compute(job: Job) -> Run:
    """One after the other, as one writes it."""
    download = httpx_download()

    def run(place: Path) -> None:
        for name, digest in zip(job.names, job.digests, strict=True):
            download(f"{job.folder}/{name}", place / name)
            compute(place / name, digest, job)
            os.unlink(place / name)

    return run


def compute(path: Path, digest: str, job: Job) -> None:
    """Be a reader: prove the shard, and be busy with it for as long as the job says."""
    until = time.perf_counter() + job.compute
    require_right(path, digest, job.size)
    time.sleep(max(0.0, until - time.perf_counter()))


CONTENDERS: dict[str, Callable[[Job], Run]] = {
    "curl": curl,
    "curl-sync": functools.partial(curl, then_sync=True),
    "ours": ours,
    "hf": hf_hub_download,
    "pooch": pooch_retrieve,
    "httpx": httpx_loop,
    "prefetcher": prefetcher,
    "sequential": download_then_compute,
}


def play(contender: str, place: str, given: str) -> None:
    """Be a child: say "ready", then fetch once for each line and print the seconds that it took."""
    job = msgspec.json.decode(given, type=Job)
    run = CONTENDERS[contender](job)
    directory = Path(place)
    print("ready", flush=True)
    for _ in sys.stdin:
        directory.mkdir(parents=True)
        settle(directory, job.size)
        begin = time.perf_counter()
        path = run(directory)
        seconds = time.perf_counter() - begin
        if path is not None:
            require_right(path, job.digests[0], job.size)
        shutil.rmtree(directory)
        print(seconds, flush=True)


def settle(directory: Path, n_bytes: int) -> None:
    """Let nothing of earlier runs be under way to the disk, and memory be at hand."""
    os.sync()
    scratch, block = directory / "scratch", bytes(MIB)
    with open(scratch, "wb", buffering=0) as file:
        file.writelines(block for _ in range(n_bytes // MIB))
    os.unlink(scratch)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def require_right(path: Path, digest: str, size: int) -> None:
    """End here unless the file has this size and digest."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        found_size = os.fstat(file.fileno()).st_size
    if (found_size, found) != (size, digest):
        raise SystemExit(f"'{path}': expected {size} bytes, {digest}, found {found_size}, {found}")


# The server.


class Serving(msgspec.Struct, frozen=True):
    """What the hub is told: files by name, as plain ones and perhaps in a repository too."""

    files: dict[str, str]
    in_repo: bool = False
    rate: float | None = None
    latency: float = 0.0


def serve() -> None:
    """Be the server that a line describes: print where it is, and stay until the input ends."""
    from shardproof.testing.faults import serve_hub  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    serving = msgspec.json.decode(sys.stdin.readline(), type=Serving)
    with serve_hub(rate=serving.rate, latency=serving.latency) as hub:
        for name, path in serving.files.items():
            hub.put(f"data/{name}", Path(path))
            if serving.in_repo:
                hub.put(name, Path(path), repo=REPO)
        print(hub.url, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def hub_of(
    files: Mapping[str, Path],
    *,
    in_repo: bool = False,
    rate: float | None = None,
    latency: float = 0.0,
) -> Iterator[str]:
    """Run a hub in a process of its own, which ends with this context or with this process."""
    names = {name: os.fspath(path) for name, path in files.items()}
    given = msgspec.json.encode(Serving(names, in_repo, rate, latency)).decode()
    argv = [sys.executable, os.fspath(HERE / "prefetch.py"), "--serve"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        print(given, file=process.stdin, flush=True)  # no command line has room for all names
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit("the hub did not start")
        yield url
    finally:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)  # which ends its input
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()


def make_file(path: Path, n_bytes: int) -> str:
    """Write random bytes, which are in the page cache then; return their SHA-256."""
    digest = hashlib.sha256()
    with open(path, "wb", buffering=0) as file:
        for start in range(0, n_bytes, MIB):
            block = os.urandom(min(MIB, n_bytes - start))
            file.write(block)
            digest.update(block)
        os.fsync(file.fileno())  # now, and not while the clocks run
    return digest.hexdigest()


# The sections.


def loopback(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """One large file, as fast as it comes."""
    name, size = "shard.bin", options.mib * MIB
    digest = make_file(place / name, size)
    with hub_of({name: place / name}, in_repo=True) as endpoint:
        job = Job(endpoint, [name], [digest], size)
        title = f"{options.mib} MiB over loopback"
        yield from to_each_target(title, place, size, functools.partial(_loopback, options, job))


_CURL, _OURS, _ONE = "`curl -s -o`", "`fetch_file`", "`fetch_file`, `connections=1`"
_HF, _POOCH = "`hf_hub_download`", "`pooch.retrieve`"


def _loopback(options: argparse.Namespace, job: Job, title: str, place: Path) -> Section:
    contenders = {
        _CURL: ("curl", job),
        "`curl -s -o`, then fsync": ("curl-sync", job),
        _OURS: ("ours", job),
        _ONE: ("ours", msgspec.structs.replace(job, connections=1)),
        _HF: ("hf", job),
        _POOCH: ("pooch", job),
        "httpx, `iter_bytes` to a file": ("httpx", job),
    }
    missing = []
    for what, tool in {"curl": "curl", "hf": "huggingface_hub", "pooch": "pooch"}.items():
        if not (shutil.which(tool) or importlib.util.find_spec(tool)):
            missing.append(tool)
            contenders = {key: each for key, each in contenders.items() if what not in each[0]}
    note = (
        f"One file in the page cache; {options.rounds} rounds. `fetch_file` computes SHA-256, "
        "compares it with the one it was given, and calls fsync for the file, before it has its "
        "name, and for the directory; where curl is followed by fsync, that is for the file. "
        "`pooch.retrieve` computes and compares SHA-256 when all has come, `hf_hub_download` "
        "compares the size, curl and httpx nothing of the kind; none of these calls fsync. "
        "Starting curl is in its time."
    )
    if missing:
        note += f" Not measured, since it is not installed: {', '.join(missing)}."
    commands = [
        fetching(what, contender, place, each) for what, (contender, each) in contenders.items()
    ]
    section = Section(title, note, "MB/s")
    section.figures = figures(commands, rates(commands, options.rounds, job.size), 1)
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler(f"{_OURS} over {beside}, MB/s", aim, ratio_of(found, _OURS, beside), at_least=True)
        for beside, aim in {_CURL: 0.8, _HF: 1.0, _POOCH: 1.0}.items()
    ]
    return section


def ranges(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    """A server that holds each connection to a rate."""
    name, size = "shard.bin", RANGES_MIB * MIB
    digest = make_file(place / name, size)
    with hub_of({name: place / name}, rate=RATE, latency=LATENCY) as endpoint:
        job = Job(endpoint, [name], [digest], size)
        title = f"{RANGES_MIB} MiB in parallel ranges"
        yield from to_each_target(title, place, size, functools.partial(_ranges, options, job))


def _ranges(options: argparse.Namespace, job: Job, title: str, place: Path) -> Section:
    whats = {n: f"`fetch_file`, `connections={n}`" for n in CONNECTIONS}
    commands = [
        fetching(what, "ours", place, msgspec.structs.replace(job, connections=n))
        for n, what in whats.items()
    ]
    note = (
        f"{_limited()}; {options.rounds} rounds. Each run waits for two answers, of a HEAD and of "
        "the GETs, however many connections there are: *at best* is what these waits leave of n "
        "times one connection. With SHA-256 and fsync."
    )
    section = Section(title, note, "MB/s")
    section.figures = figures(commands, rates(commands, options.rounds, job.size), 1)
    found = {figure.what: figure for figure in section.figures}
    for n, what in whats.items():
        times = ratio_of(found, what, whats[1]) or 0.0
        seconds = [2 * LATENCY + job.size / RATE / n for n in (1, n)]
        found[what].extra["of n times one"] = f"{times / n:.3f}"
        found[what].extra["at best"] = f"{seconds[0] / seconds[1] / n:.3f}"
        if n > 1:
            text = f"{n} connections over {n} times one"
            section.rulers.append(Ruler(text, 0.9, times / n, at_least=True))
    return section


def lookahead(options: argparse.Namespace, place: Path) -> list[Section]:
    """A reader that computes while the next shard comes."""
    size = SHARD_MIB * MIB
    paths = {f"shard{number:02}.bin": place / f"shard{number:02}.bin" for number in range(N_SHARDS)}
    digests = [make_file(path, size) for path in paths.values()]
    download = size / RATE + LATENCY
    cases = {"less than": 0.5, "as long as": 1.0, "longer than": 2.0}
    with hub_of(paths, rate=RATE, latency=LATENCY) as endpoint:
        job = Job(endpoint, list(paths), digests, size)
        return [
            _lookahead(
                f"{N_SHARDS} shards, computing takes {case} downloading",
                options,
                msgspec.structs.replace(job, compute=download * factor),
                place / "cache",
            )
            for case, factor in cases.items()
        ]


def _lookahead(title: str, options: argparse.Namespace, job: Job, place: Path) -> Section:
    contenders: dict[str, tuple[str, int, int | None]] = {
        "httpx, download then compute": ("sequential", 0, 1),
        "`lookahead=0`": ("prefetcher", 0, None),
        "`lookahead=1`": ("prefetcher", 1, None),
        "`lookahead=1`, `connections=1`": ("prefetcher", 1, 1),
        "`lookahead=2`": ("prefetcher", 2, None),
    }
    commands = []
    for what, (contender, ahead, connections) in contenders.items():
        each = msgspec.structs.replace(job, lookahead=ahead, connections=connections)
        commands.append(fetching(what, contender, place, each))
    one, two = bound(job, 1), bound(job, 2)
    note = (
        f"{N_SHARDS} shards of {SHARD_MIB} MiB, {_limited()}; the reader takes {job.compute:.3f} s "
        f"for each, in which it also computes its SHA-256; {options.rounds} rounds. d = size / "
        f"rate + latency = {job.size / RATE + LATENCY:.3f} s, c = what the reader takes; the bound "
        f"is 1.1 x {N_SHARDS} x max(d, c) + d = {one:.2f} s. By default such a shard comes over "
        f"two connections; with d for these, the bound is {two:.2f} s."
    )
    section = Section(title, note, "s")
    section.figures = figures(commands, warm_race(commands, options.rounds), 1)
    for figure in section.figures:
        _, ahead, connections = contenders[figure.what]
        figure.extra["of the bound"] = f"{figure.median / one:.3f}"
        if connections is None:
            figure.extra["... for two connections"] = f"{figure.median / two:.3f}"
        if ahead == 1:
            section.rulers.append(_within(figure, "the bound", one))
            if connections is None:
                section.rulers.append(_within(figure, "the bound for two connections", two))
    return section


def _within(figure: Figure, what: str, seconds: float) -> Ruler:
    measured = statistics.median(value / seconds for value in figure.values)
    return Ruler(f"{figure.what} over {what}", 1.0, measured)


def bound(job: Job, connections: int) -> float:
    """Seconds: 1.1 times what takes longest, for all shards, and one download before the first."""
    download = job.size / (RATE * connections) + LATENCY
    return 1.1 * len(job.names) * max(download, job.compute) + download


def memory(options: argparse.Namespace, place: Path) -> list[Section]:
    """Peak memory of a process that fetches one file."""
    sizes = [max(1, options.mib // 16), max(1, options.mib // 4), options.mib]
    paths = {f"{mib}.bin": place / f"{mib}.bin" for mib in sizes}
    digests = {name: make_file(path, path_mib(name)) for name, path in paths.items()}
    only, whats = "importing only", {name: f"{name[:-4]} MiB" for name in paths}
    rounds = []
    with hub_of(paths) as endpoint:
        for _ in range(options.rounds):
            peaks = [peak([])]
            for name, digest in digests.items():
                target = place / "fetched.bin"
                peaks.append(peak([f"{endpoint}/data", name, os.fspath(target), digest]))
                require_right(target, digest, path_mib(name))
                os.unlink(target)
            rounds.append(peaks)
    commands = [Command(what, []) for what in (only, *whats.values())]
    note = (
        "The most that a process ever had resident that imports shardproof.fetching and httpx, and "
        "fetches one file with the default limits and its SHA-256 (VmHWM, since ru_maxrss begins "
        f"with what the parent had); {options.rounds} rounds."
    )
    section = Section("Peak memory of a fetch", note, "MB")
    section.figures = figures(commands, iter(rounds), 1)
    found = {figure.what: figure for figure in section.figures}
    for what in whats.values():
        pairs = zip(found[what].values, found[only].values, strict=True)
        more = statistics.median(a - b for a, b in pairs)
        found[what].extra[f"more than {only}"] = f"{more:.1f}"
    smallest, *_, largest = whats.values()
    section.rulers = [Ruler(f"{largest} over {smallest}", 1.2, ratio_of(found, largest, smallest))]
    return [section]


def path_mib(name: str) -> int:
    """Bytes of the file that is called ``<MiB>.bin``."""
    return int(name.removesuffix(".bin")) * MIB


_FETCH_THEN_PEAK = """
import sys
import httpx
from shardproof.fetching import fetch_file, open_source
if len(sys.argv) > 1:
    folder, name, target, digest = sys.argv[1:]
    with open_source(folder) as source:
        fetch_file(source, name, target, digest=f"sha256:{digest}")
print(open("/proc/self/status").read())
"""


def peak(arguments: Sequence[str]) -> float:
    argv = [sys.executable, "-c", _FETCH_THEN_PEAK, *arguments]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    kilobytes = re.search(r"VmHWM:\s*(\d+) kB", done.stdout)
    return int(kilobytes[1]) * 1024 / 1e6 if kilobytes else float("nan")


# What sections share.


NO_ROOM = f"Not measured: {SHM} is no tmpfs with room for it."


def to_each_target(
    title: str, place: Path, n_bytes: int, measure: Callable[[str, Path], Section]
) -> Iterator[Section]:
    """Measure what is fetched to the disk, and to memory where there is room."""
    for where, target in targets(place, n_bytes).items():
        if target is None:
            yield Section(f"{title}, to {where}", NO_ROOM, "MB/s")
            continue
        with tempfile.TemporaryDirectory(prefix="shardproof-bench-", dir=target) as directory:
            yield measure(f"{title}, to {where}", Path(directory))


def targets(place: Path, n_bytes: int) -> dict[str, Path | None]:
    """Where files are fetched to; None for memory where there is none of it."""
    return {"the disk": place, "memory": SHM if has_room(SHM, 3 * n_bytes) else None}


def has_room(path: Path, n_bytes: int) -> bool:
    if not path.is_dir() or machine(path)["file system"] != "tmpfs":
        return False
    available = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    room = int(available[1]) * 1024 if available else 0
    return min(room, shutil.disk_usage(path).free) >= n_bytes and os.access(path, os.W_OK)


def rates(commands: Sequence[Command], rounds: int, n_bytes: int) -> Iterator[list[float]]:
    """Yield the MB/s of each round."""
    for seconds in warm_race(commands, rounds):
        yield [n_bytes / 1e6 / each for each in seconds]


def _limited() -> str:
    return f"{RATE / 1e6:g} MB/s on each connection and {LATENCY * 1e3:g} ms before each answer"


def fetching(what: str, contender: str, place: Path, job: Job) -> Command:
    directory = place / f"to-{contender}-{job.lookahead}-{job.connections}"
    env = {"HF_HOME": os.fspath(place / "hf-home")}
    return child(what, contender, directory, msgspec.json.encode(job).decode(), env=env)


QUIET = {
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "0",
}
"""Nobody asks a proxy for what is on loopback, nor draws, nor talks to anybody else."""


def versions() -> str:
    """Versions of those who take part."""
    found = []
    for package in ("httpx", "huggingface_hub", "pooch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    if shutil.which("curl"):
        told = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
        found.append(" ".join(told.stdout.split()[:2]))
    return "".join(f", {version}" for version in found)


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--mib", type=int, default=1024, help="the largest file")
    found.add_argument("--rounds", type=int, default=5)
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    measure = {"loopback": loopback, "ranges": ranges, "lookahead": lookahead, "memory": memory}
    for section in options.only:
        (place / section).mkdir()
        yield from measure[section](options, place / section)
        shutil.rmtree(place / section)


def main() -> None:
    os.environ.update(QUIET)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    report(parse_arguments(), measured, versions())


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["--play"]:
            play(*sys.argv[2:])
        case ["--serve"]:
            serve()
        case _:
            main()
