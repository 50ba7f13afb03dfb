"""What it costs to validate a shards directory, beside the least that it could cost.

::

    python benchmarks/validate.py [--saev CHECKOUT] [--json FILE] [--markdown FILE]

Every contender runs in a process of its own and times itself. Within a section the contenders take
turns (A B C A B C ...), so that a slow minute of the machine hits all of them.
"""

import argparse
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import re
import stat
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _figures import Figure, Ruler, Section, figures, ratio_of
from _races import (
    NO_COMPILER,
    Command,
    child,
    cold_race,
    compiled,
    play_or,
    process_race,
    warm_race,
)
from _report import parser, report

SHARD = bytes(range(16))
OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
SECTIONS = ("warm", "slow", "start", "memory")

Run = Callable[[], object]


# Contenders: each is prepared with a directory, and returns what is timed.


def names_of(shards_dir: Path) -> list[str]:
    return [shard["name"] for shard in json.loads((shards_dir / "shards.json").read_bytes())]


def names_loop(shards_dir: Path) -> Run:
    """open, fstat, close over known names."""
    names, dir_fd = names_of(shards_dir), os.open(shards_dir, os.O_RDONLY)

    def run() -> None:
        open_, fstat, close = os.open, os.fstat, os.close
        for name in names:
            fd = open_(name, OPEN_FLAGS, dir_fd=dir_fd)
            fstat(fd)
            close(fd)

    return run


def listing_loop(shards_dir: Path) -> Run:
    """open, fstat, close over a listing."""
    dir_fd = os.open(shards_dir, os.O_RDONLY)

    def run() -> None:
        open_, fstat, close = os.open, os.fstat, os.close
        with os.scandir(dir_fd) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        for name in names:
            fd = open_(name, OPEN_FLAGS, dir_fd=dir_fd)
            fstat(fd)
            close(fd)

    return run


def stat_loop(shards_dir: Path) -> Run:
    """stat, open, close over known names."""
    names, dir_fd = names_of(shards_dir), os.open(shards_dir, os.O_RDONLY)

    def run() -> None:
        open_, stat_, close = os.open, os.stat, os.close
        for name in names:
            stat_(name, dir_fd=dir_fd, follow_symlinks=False)
            close(open_(name, OPEN_FLAGS, dir_fd=dir_fd))

    return run


def pathlib_loop(shards_dir: Path) -> Run:
    """What a loop of pathlib costs that opens nothing."""
    names = names_of(shards_dir)

    def run() -> None:
        for name in names:
            path = shards_dir / name
            absolute = path.resolve()
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
                raise SystemExit(f"not a shard: {absolute}")

    return run


def saev_validate(shards_dir: Path, checkout: str) -> Run:
    """What saev itself does: stat only, nothing is opened."""
    shards = load_saev_shards(Path(checkout))
    shard_info = shards.ShardInfo.load(shards_dir)
    return functools.partial(shard_info.validate, shards_dir)


def shard_info_validate(shards_dir: Path) -> Run:
    import shardproof  # noqa: PLC0415 - only this child needs it

    shard_info = shardproof.ShardInfo.load(shards_dir)
    return functools.partial(shard_info.validate, shards_dir)


def validate(shards_dir: Path, level: str = "present", workers: str = "") -> Run:
    import shardproof  # noqa: PLC0415

    look: Callable[..., Any] = shardproof.validate
    n_workers = int(workers) if workers else None

    def run() -> None:
        if not look(shards_dir, level=level, workers=n_workers).ok:
            raise SystemExit("the directory is not whole")

    return run


def forecast(shards_dir: Path) -> Run:
    import shardproof  # noqa: PLC0415

    return functools.partial(shardproof.forecast, shards_dir, purge_after="60d")


CONTENDERS: dict[str, Callable[..., Run]] = {
    "names": names_loop,
    "listing": listing_loop,
    "stat": stat_loop,
    "pathlib": pathlib_loop,
    "saev": saev_validate,
    "shard_info": shard_info_validate,
    "validate": validate,
    "forecast": forecast,
}


def play(contender: str, shards_dir: str, *arguments: str) -> None:
    """Be a child: say "ready", then run once for each line and print the seconds that it took."""
    run = CONTENDERS[contender](Path(shards_dir), *arguments)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(time.perf_counter() - begin, flush=True)


# saev's module imports torch and more at its top. ShardInfo.validate uses none of it, so whatever
# is not installed is replaced by empty stand-ins; beartype, numpy and saev's siblings are real.


class _StandInType(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandInType(name, (), {})

    def __getitem__(cls, _: object) -> type:
        return object

    def __call__(cls, *_: object, **__: object) -> Any:
        return lambda decorated: decorated


class _StandInModule(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandInType(name, (), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder that is asked: it has an empty module for what nobody else found."""

    names = frozenset(
        {"PIL", "einops", "jaxtyping", "orjson", "scipy", "torch", "torchvision", "tqdm"}
    )

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it empty."""


def load_saev_shards(checkout: Path) -> Any:
    """Return saev.data.shards of a checkout, without running the packages' own __init__."""
    sys.meta_path.append(_StandIns())
    for package in ("saev", "saev.data"):
        module = types.ModuleType(package)
        module.__path__ = [str(checkout.joinpath("src", *package.split(".")))]
        sys.modules[package] = module
    return importlib.import_module("saev.data.shards")


def stood_in(checkout: Path) -> list[str]:
    """Names of the modules that saev gets stand-ins for on this machine."""
    source = (checkout / "src/saev/data/shards.py").read_text()
    if "class ShardInfo" not in source:
        raise SystemExit("--saev: expected a checkout whose src/saev/data/shards.py has ShardInfo")
    return sorted(name for name in _StandIns.names if importlib.util.find_spec(name) is None)


# The directories.


def make_shards_dir(parent: Path, n_files: int, *, d_model: int = 4, files: bool = True) -> Path:
    """Write a shards directory of saev whose shards have 16 bytes; ``d_model`` 4 promises them."""
    shards_dir = parent / "saev" / "shards" / "bench"  # saev insists on such a path
    shards_dir.mkdir(parents=True)
    names = [f"acts{number:06}.bin" for number in range(n_files)]
    metadata = {
        "family": "clip",
        "ckpt": "ViT-B-32/openai",
        "layers": [1],
        "content_tokens_per_example": 1,
        "cls_token": False,
        "d_model": d_model,
        "n_examples": n_files,
        "max_tokens_per_shard": 1,
        "data": "",
        "dataset": "/data/images",
        "pixel_agg": "majority",
        "dtype": "float32",
        "protocol": "2.1",
    }
    (shards_dir / "metadata.json").write_text(json.dumps(metadata, indent=2))
    shards = [{"name": name, "n_examples": 1} for name in names]
    (shards_dir / "shards.json").write_text(json.dumps(shards, indent=2))
    for name in names if files else ():
        (shards_dir / name).write_bytes(SHARD)
    return shards_dir


# The sections.

_FORECAST = '`forecast(path, purge_after="60d")`'


def warm(options: argparse.Namespace, place: Path) -> Section:
    """A local disk whose inodes are all cached."""
    shards_dir = make_shards_dir(place / "warm", options.files)
    loop = compiled("loop.c", place)
    c_loop, ours = "C: openat, fstat, close over names", "`validate(path)`"
    slowest = "Python: pathlib resolve, stat over names; opens nothing"
    commands = [
        child("Python: open, fstat, close over names", "names", shards_dir),
        child("Python: listing, then open, fstat, close", "listing", shards_dir),
        child("Python: stat, open, close over names", "stat", shards_dir),
        child(slowest, "pathlib", shards_dir),
        child(ours, "validate", shards_dir),
        child("`ShardInfo.validate(path)`", "shard_info", shards_dir),
        child('`validate(path, level="complete")`', "validate", shards_dir, "complete"),
        child(_FORECAST, "forecast", shards_dir),
    ]
    note = f"{options.files} files of {len(SHARD)} bytes, {options.rounds} rounds."
    if loop:
        argv = [os.fspath(loop), os.fspath(shards_dir), str(options.files)]
        commands.insert(0, Command(c_loop, argv))
    else:
        note += f" C loop: {NO_COMPILER}."
    if options.saev:
        slowest = "saev: `ShardInfo.validate`; opens nothing"
        commands.append(child(slowest, "saev", shards_dir, options.saev))
        note += f" saev runs with stand-ins for {', '.join(stood_in(options.saev)) or 'nothing'}."
    section = Section("Warm local disk", note, "us a file")
    race = warm_race(commands, options.rounds)
    section.figures = figures(commands, race, 1e6 / options.files)
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler("`validate(path)` over the C loop", 1.8, ratio_of(found, ours, c_loop)),
        Ruler(f"{_FORECAST} over `validate(path)`", 1.3, ratio_of(found, _FORECAST, ours)),
        Ruler(f"{slowest} over `validate(path)`", 7, ratio_of(found, slowest, ours), at_least=True),
    ]
    return section


_SEQUENTIAL, _DEFAULT = "`validate(path, workers=1)`", "`validate(path)`"
_CASES = {
    ", only the second half slow": "SLOW_FROM",
    ", no file types in the listing": "SLOW_NO_TYPES",
}


def slow(options: argparse.Namespace, place: Path) -> Section:
    """A file system on which each metadata call takes a millisecond."""
    title = f"{options.milliseconds:g} ms for each metadata call"
    note = f"{options.slow_files} files, {options.slow_rounds} rounds, each run in a new process."
    shim = compiled("slow.c", place, "-shared", "-fPIC")
    if shim is None:
        return Section(title, f"{NO_COMPILER}.", "ms for all")
    shards_dir = make_shards_dir(place / "slow", options.slow_files)
    commands = _slow_commands(options, shards_dir, shim, place)
    race = cold_race(commands, options.slow_rounds)
    section = Section(title, note, "ms for all", figures(commands, race, 1e3))
    for figure, command in zip(section.figures, commands, strict=True):
        counts = json.loads(Path(command.env["SLOW_COUNTS"]).read_text())
        figure.extra["calls a file"] = f"{sum(counts.values()) / options.slow_files:.2f}"
    found = {figure.what: figure for figure in section.figures}
    for case in ("", *_CASES):
        faster = ratio_of(found, f"{_SEQUENTIAL}{case}", f"{_DEFAULT}{case}")
        found[f"{_DEFAULT}{case}"].extra["times faster than `workers=1`"] = f"{faster:.1f}"
    faster = ratio_of(found, _SEQUENTIAL, _DEFAULT)
    section.rulers = [Ruler(f"{_SEQUENTIAL} over {_DEFAULT}", 40, faster, at_least=True)]
    return section


def _slow_commands(
    options: argparse.Namespace, shards_dir: Path, shim: Path, place: Path
) -> list[Command]:
    arguments: dict[str, tuple[str, ...]] = {
        "Python: open, fstat, close over names": ("names", str(shards_dir)),
        _SEQUENTIAL: ("validate", str(shards_dir), "present", "1"),
        _DEFAULT: ("validate", str(shards_dir)),
        _FORECAST: ("forecast", str(shards_dir)),
    }
    base = {
        "LD_PRELOAD": os.fspath(shim),
        "SLOW_ROOT": os.fspath(shards_dir),
        "SLOW_NANOSECONDS": str(round(options.milliseconds * 1e6)),
    }
    commands: list[Command] = []
    for case, variable in {"": "", **_CASES}.items():
        for number, (what, words) in enumerate(arguments.items()):
            if variable and not number:
                continue  # the bare loop neither lists nor adapts: once is enough
            counts = place / f"counts{len(commands)}.json"
            env = {**base, "SLOW_COUNTS": os.fspath(counts)}
            if variable:
                env[variable] = str(options.slow_files // 2)
            commands.append(child(what + case, *words, env=env))
    return commands


def start(options: argparse.Namespace, place: Path) -> Section:
    """What starting costs where nothing is validated yet."""
    empty = place / "empty"
    empty.mkdir()
    # Hypothesis' plugin takes half a second, and imports what ours would have to import without it.
    others_off = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", *others_off]
    (empty / "pytest.ini").write_text("[pytest]\n")
    three = make_shards_dir(place / "three", 3)
    look = f"import shardproof; assert shardproof.validate({os.fspath(three)!r})"
    command = [sys.executable, "-m", "shardproof"]
    version, looking = "`shardproof --version`", "`shardproof validate` of three shards"
    bare, imported = "`python -c pass`", '`python -c "import shardproof"`'
    without, plugged = "`pytest --collect-only -p no:shardproof`", "`pytest --collect-only`"
    commands = [
        Command(bare, [sys.executable, "-c", "pass"]),
        Command(imported, [sys.executable, "-c", "import shardproof"]),
        Command("... and `shardproof.validate`", [sys.executable, "-c", _FIRST_USE]),
        Command("... and a look at three shards", [sys.executable, "-c", look]),
        Command(version, [*command, "--version"]),
        Command(looking, [*command, "validate", os.fspath(three)]),
        Command('`python -c "import click"`', [sys.executable, "-c", "import click"]),
    ]
    note = f"Whole processes, {options.start_rounds} rounds; pytest in an empty project."
    if (peer := Path(sys.executable).with_name("hf")).exists():
        commands.append(
            Command("`hf --version`, of huggingface_hub", [os.fspath(peer), "--version"])
        )
    if _has_plugin():
        commands += [
            Command(without, [*pytest, "-p", "no:shardproof"]),
            Command(plugged, pytest),
        ]
    else:
        note += " pytest: not measured: shardproof is not installed with its entry point."
    section = Section("Start", note, "ms")
    section.figures = figures(commands, process_race(commands, options.start_rounds, empty), 1e3)
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        Ruler("`import shardproof`", 20, _more(found, imported, bare), unit=" ms"),
        Ruler(version, 40, found[version].median, unit=" ms"),
        Ruler(looking, 100, found[looking].median, unit=" ms"),
        Ruler("the pytest plugin", 15, _more(found, plugged, without), unit=" ms"),
    ]
    return section


_FIRST_USE = "import shardproof; shardproof.validate"


def _has_plugin() -> bool:
    plugins = importlib.metadata.entry_points(group="pytest11")
    return any(plugin.name == "shardproof" for plugin in plugins)


def _more(found: Mapping[str, Figure], what: str, beside: str) -> float | None:
    """Median of how much more ``what`` took than ``beside`` in the same round."""
    if what not in found:
        return None
    pairs = zip(found[what].values, found[beside].values, strict=True)
    return statistics.median(a - b for a, b in pairs)


def memory(options: argparse.Namespace, place: Path) -> Section:
    """Peak memory of a process that only imports shardproof, validates and makes the text."""
    healthy = make_shards_dir(place / "healthy", options.files)
    missing = make_shards_dir(place / "missing", options.files, files=False)
    small = make_shards_dir(place / "small", options.files, d_model=8)
    cases = {
        "`python -c pass`": ["-c", _PEAK],
        "healthy": ["-c", _VALIDATE_THEN_PEAK, os.fspath(healthy), "present"],
        'healthy, `level="complete"`': ["-c", _VALIDATE_THEN_PEAK, os.fspath(healthy), "complete"],
        "all shards missing": ["-c", _VALIDATE_THEN_PEAK, os.fspath(missing), "present"],
        'all of another size, `level="complete"`': [
            *("-c", _VALIDATE_THEN_PEAK, os.fspath(small), "complete")
        ],
    }
    rounds = [[_peak(argv) for argv in cases.values()] for _ in range(options.memory_rounds)]
    commands = [Command(what, argv) for what, argv in cases.items()]
    note = (
        f"{options.files} files, {options.memory_rounds} rounds; with the report's text, whose "
        f"paths have {len(os.fspath(healthy / 'acts000000.bin'))} characters."
    )
    section = Section("Peak memory", note, "MB")
    section.figures = figures(commands, iter(rounds), 1)
    section.rulers = [
        Ruler(f"{figure.what}", 120, figure.median, unit=" MB") for figure in section.figures[1:]
    ]
    return section


# The kernel hands ru_maxrss on from the parent across exec(2); VmHWM begins anew.
_PEAK = "print(open('/proc/self/status').read())"
_VALIDATE_THEN_PEAK = (
    "import sys, shardproof;"
    f"text = str(shardproof.validate(sys.argv[1], level=sys.argv[2])); {_PEAK}"
)


def _peak(argv: Sequence[str]) -> float:
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True)
    kilobytes = re.search(r"VmHWM:\s*(\d+) kB", done.stdout)
    return int(kilobytes[1]) * 1024 / 1e6 if kilobytes else float("nan")


# The options.


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--files", type=int, default=100_000, help="files on the warm disk")
    found.add_argument("--rounds", type=int, default=7, help="rounds on the warm disk")
    found.add_argument("--slow-files", type=int, default=12_000, help="files with latency")
    found.add_argument("--slow-rounds", type=int, default=5, help="rounds with latency")
    found.add_argument("--milliseconds", type=float, default=1.0, help="latency of a call")
    found.add_argument("--start-rounds", type=int, default=30, help="rounds of whole processes")
    found.add_argument("--memory-rounds", type=int, default=5, help="rounds of peak memory")
    found.add_argument("--saev", type=Path, metavar="DIR", help="a checkout of OSU-NLP-Group/saev")
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    measure = {"warm": warm, "slow": slow, "start": start, "memory": memory}
    for section in options.only:
        yield measure[section](options, place)


if __name__ == "__main__":
    play_or(lambda: report(parse_arguments(), measured), play)
