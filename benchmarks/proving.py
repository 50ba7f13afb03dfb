"""What it costs to prove bytes, to seal them, and to look at many small shards of each format.

::

    python benchmarks/proving.py [--only valid seal hub complete million] [--markdown FILE]

Whole commands take turns; what runs in a process of its own times itself. Pages are cached before
the first timed round, so that hashing is measured and not the disk.
"""

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _copied import COPIED, copied
from _figures import Figure, Ruler, Section, figures, ratio_of
from _listed import LISTED, listed
from _races import Command, child, play_or, process_race, warm_race
from _report import parser, report

from shardproof._base.fanout import available_cpus

SECTIONS = ("valid", "seal", "hub", "complete", "million")
SHARDPROOF = [sys.executable, "-m", "shardproof"]
_BOTH = ("present", "complete")
_VALID = ("validate", "--level", "valid")
N_CPUS = available_cpus()
SAMPLES = ("saev", "mds", "webdataset", "parquet", "safetensors", "hf-cache", "digests")


# Contenders that time themselves.


def hashing(path: Path, algorithm: str) -> Callable[[], object]:
    """Hashlib over every file, in as many threads as there are processors."""
    names = sorted(path.glob("*.bin"))

    def hash_some(start: int) -> None:
        for file in names[start::N_CPUS]:
            with file.open("rb", buffering=0) as opened:
                hashlib.file_digest(opened, algorithm)

    def run() -> None:
        threads = [threading.Thread(target=hash_some, args=(n,)) for n in range(N_CPUS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def mapping(path: Path) -> Callable[[], object]:
    """Each file in turn by all threads, from memory that is mapped: what b3sum does."""
    import blake3  # noqa: PLC0415 - only this child needs it

    names = sorted(path.glob("*.bin"))

    def run() -> None:
        for file in names:
            blake3.blake3(max_threads=blake3.blake3.AUTO).update_mmap(file).digest()

    return run


def looking(path: Path, level: str) -> Callable[[], object]:
    import shardproof  # noqa: PLC0415 - only this child needs it

    look: Callable[..., Any] = shardproof.validate

    def run() -> None:
        if not look(path, level=level).ok:
            raise SystemExit("the directory is not whole")

    return run


CONTENDERS: dict[str, Callable[..., Callable[[], object]]] = {
    "hashing": hashing,
    "mapping": mapping,
    "looking": looking,
}


def play(contender: str, path: str, *arguments: str) -> None:
    """Be a child: say "ready", then run once for each line and print the seconds that it took."""
    run = CONTENDERS[contender](Path(path), *arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(time.perf_counter() - begin, flush=True)


# The sections.


def large_files(options: argparse.Namespace, place: Path) -> Path:
    """Write eight files of bytes that do not repeat within any cache."""
    path = place / "large"
    if not path.exists():
        path.mkdir()
        block = os.urandom(2**24)
        for number in range(options.files):
            with (path / f"{number}.bin").open("wb") as file:
                for at in range(0, options.mebibytes * 2**20, len(block)):
                    file.write(number.to_bytes(8, "little") + at.to_bytes(8, "little") + block[16:])
    return path


def valid(options: argparse.Namespace, place: Path) -> Section:
    """Prove files whose digests are in a list."""
    path = large_files(options, place)
    lists = {"sha256": path / "SHA256SUMS", "blake3": path / "B3SUMS"}
    n_bytes = options.files * options.mebibytes * 2**20
    found: dict[str, Figure] = {}
    section = Section("Verify large files", _note(options), "s")
    limits = {
        "sha256": child(f"hashlib in {N_CPUS} threads", "hashing", path, "sha256"),
        "blake3": child("the blake3 package, as b3sum does it", "mapping", path),
    }
    for algorithm, made_list in lists.items():
        for other in lists.values():
            other.unlink(missing_ok=True)
        with contextlib.suppress(subprocess.CalledProcessError):
            _run(["seal", "--algorithm", algorithm, str(path)])
        if not made_list.exists():
            section.note += f" {algorithm}: not measured: not installed."
            continue
        ours = f"`shardproof validate --level valid`, {algorithm}"
        commands = [Command(ours, [*SHARDPROOF, "validate", "--level", "valid", str(path)])]
        commands += _peers(algorithm, made_list)
        made = figures(commands, process_race(commands, options.rounds, path), 1)
        running = child(f"`shardproof.validate`, {algorithm}", "looking", path, "valid")
        children = [running, limits[algorithm]]
        made += figures(children, warm_race(children, options.rounds), 1)
        section.figures += made
        found |= {figure.what: figure for figure in made}
    for figure in section.figures:
        figure.extra["GB/s"] = f"{n_bytes / figure.median / 1e9:.2f}"
    ours, one = "`shardproof validate --level valid`, sha256", "`sha256sum -c`, one after the other"
    rival = "`b3sum -c`" if shutil.which("b3sum") else limits["blake3"].what
    rates = [
        (limits["sha256"].what, 0.95, (ours, "`shardproof.validate`, sha256")),
        (rival, 0.9, (f"{ours.removesuffix('sha256')}blake3", "`shardproof.validate`, blake3")),
    ]
    section.rulers = [
        Ruler(f"rate of {what} over {limit}", aim, ratio_of(found, limit, what), at_least=True)
        for limit, aim, both in rates
        for what in both
    ]
    section.rulers += [
        Ruler(f"{one} over `valid`", 8, ratio_of(found, one, ours), at_least=True),
        Ruler(
            "peak memory", 200, _peak_of(["validate", "--level", "valid", str(path)]), unit=" MB"
        ),
    ]
    return section


def _peers(algorithm: str, made: Path) -> list[Command]:
    if algorithm == "blake3":
        peer = shutil.which("b3sum")
        return [Command("`b3sum -c`", [peer, "--check", made.name])] if peer else []
    in_turns = ["sh", "-c", f"xargs -P {N_CPUS} -n 1 -a names sha256sum"]
    (made.parent / "names").write_text("\n".join(p.name for p in made.parent.glob("*.bin")) + "\n")
    return [
        Command("`sha256sum -c`, one after the other", ["sha256sum", "-c", made.name]),
        Command(f"`xargs -P {N_CPUS} sha256sum`", in_turns),
    ]


def seal(options: argparse.Namespace, place: Path) -> Section:
    """Write the list, beside the look that proves it."""
    path = large_files(options, place)
    script = f"rm -f *SUMS .*.journal; exec {sys.executable} -m shardproof seal ."
    sealing = "`shardproof seal`"
    proving = "`shardproof validate --level valid`"
    commands = [
        Command(sealing, ["sh", "-c", script]),
        Command(proving, [*SHARDPROOF, "validate", "--level", "valid", str(path)]),
    ]
    section = Section("Seal large files", _note(options), "s")
    section.figures = figures(commands, process_race(commands, options.rounds, path), 1)
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [Ruler(f"{sealing} over `valid`", 1.05, ratio_of(found, sealing, proving))]
    return section


def hub(options: argparse.Namespace, place: Path) -> Section:
    """A repository in the cache of huggingface_hub, beside `hf cache verify`."""
    from shardproof.testing.faults import serve_hub  # noqa: PLC0415

    path, section = large_files(options, place), Section("A Hugging Face cache", "", "s")
    peer = Path(sys.executable).with_name("hf")
    with serve_hub() as server:
        for file in sorted(path.glob("*.bin")):
            server.put(file.name, file, repo="org/name", lfs=True)
        os.environ |= {"HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(place / "hub")}
        download = [os.fspath(peer), "download", "org/name", "--repo-type", "dataset"]
        subprocess.run(download, check=True, capture_output=True)
        root = place / "hub" / "datasets--org--name"
        ours, theirs = "`shardproof validate --level valid`", "`hf cache verify`"
        argv = [os.fspath(peer), "cache", "verify", "org/name", "--repo-type", "dataset"]
        commands = [
            Command(ours, [*SHARDPROOF, "validate", "--level", "valid", os.fspath(root)]),
            Command(theirs, argv),
        ]
        section.note = f"{_note(options)} The hub is on this host: its answer takes milliseconds."
        section.figures = figures(commands, process_race(commands, options.rounds, place), 1)
    found = {figure.what: figure for figure in section.figures}
    faster = ratio_of(found, theirs, ours)
    section.rulers = [Ruler(f"{theirs} over {ours}", N_CPUS, faster, at_least=True)]
    return section


def complete(options: argparse.Namespace, place: Path) -> Section:
    """Many small shards: of the kit, copies of one that a library wrote, or with a list of ours."""
    from shardproof.testing import Layout, write_layout  # noqa: PLC0415

    n_shards = options.small_files
    section = Section(
        "Many small shards", f"{n_shards} shards, {options.rounds} rounds.", "us a file"
    )
    for form in (*SAMPLES, *COPIED, *LISTED):
        path = place / f"small-{form}"
        if form in SAMPLES:
            layout = Layout(n_shards=n_shards, format=form)
            path = write_layout(layout, path / layout.folder)
        else:
            (copied if form in COPIED else listed)(form, n_shards, path)
        commands = [
            child(f"{form}, {level}", "looking", path, level) for level in ("present", "complete")
        ]
        made = figures(commands, warm_race(commands, options.rounds), 1e6 / n_shards)
        section.figures += made
        ratio = ratio_of({f.what: f for f in made}, commands[1].what, commands[0].what)
        section.rulers.append(Ruler(f"{form}: `complete` over `present`", 4, ratio))
    return section


def million(options: argparse.Namespace, place: Path) -> Section:
    """A list that promises a million files: memory, and whether time grows with the number."""
    section = Section(
        "A million expected files", "Files of one byte in folders of 1000.", "us a file"
    )
    peaks = []
    for n_files in (options.many_files // 10, options.many_files):
        path = _many(place / f"many-{n_files}", n_files)
        command = child(f"{n_files} files, present", "looking", path, "present")
        made = figures([command], warm_race([command], 2), 1e6 / n_files)
        section.figures += made
        peaks.append(_peak_of(["validate", "-q", str(path)]))
    small, large = section.figures
    section.rulers = [
        Ruler("a file among a million over one among a tenth", 1.3, large.median / small.median),
        Ruler("peak memory", 1200, peaks[-1], unit=" MB"),
    ]
    return section


def _many(path: Path, n_files: int) -> Path:
    lines = []
    for folder in range(n_files // 1000):
        (path / f"{folder:04}").mkdir(parents=True)
        for number in range(1000):
            name = f"{folder:04}/{number:04}.bin"
            (path / name).write_bytes(b"x")
            lines.append(f"{hashlib.sha256(b'x').hexdigest()}  {name}\n")
    (path / "SHA256SUMS").write_text("".join(lines))
    return path


def _note(options: argparse.Namespace) -> str:
    size = f"{options.files} files of {options.mebibytes} MiB"
    return f"{size}, {options.rounds} rounds, {N_CPUS} processors, pages cached; whole commands."


def _run(arguments: Sequence[str]) -> None:
    subprocess.run([*SHARDPROOF, *arguments], check=True, capture_output=True)


_PEAK = (
    "import sys; sys.argv[0] = 'shardproof'\n"
    "from shardproof.__main__ import main\n"
    "try:\n    main()\n"
    "finally:\n    print(open('/proc/self/status').read(), file=sys.stderr)"
)


def _peak_of(arguments: Sequence[str]) -> float:
    argv = [sys.executable, "-c", _PEAK, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    kilobytes = re.search(r"VmHWM:\s*(\d+) kB", done.stderr)
    return int(kilobytes[1]) * 1024 / 1e6 if kilobytes else float("nan")


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--files", type=int, default=8, help="large files")
    found.add_argument("--mebibytes", type=int, default=512, help="size of a large file")
    found.add_argument("--small-files", type=int, default=20_000, help="small shards of a format")
    found.add_argument("--many-files", type=int, default=1_000_000, help="expected files")
    found.add_argument("--rounds", type=int, default=5, help="rounds of each race")
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    measure = {"valid": valid, "seal": seal, "hub": hub, "complete": complete, "million": million}
    for section in options.only:
        yield measure[section](options, place)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)
