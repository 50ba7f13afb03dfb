"""The plugin's options and hooks: which shards directories a run validates, and what it says."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardproof._base.messages import quoted, shown, told
from shardproof._base.opening import is_regular, is_there, matching, real_path
from shardproof.formats import signs
from shardproof.pytest_plugin._needs import NeedsShards
from shardproof.pytest_plugin._nodes import (
    VALIDATION,
    NothingFoundItem,
    ShardsDirectory,
    ShardsManifest,
    counted,
    shown_path,
)

if TYPE_CHECKING:
    from shardproof import Level

_EMPTY = "expected a path, found none: is a variable not set? The current directory is '.'"
# A line is taken as it is: of an empty path in quotes, as in a shell, it has them.
_NONE = {"", "''", '""'}
_NOT_GIVEN: list[str] = []
_PATTERN = frozenset("*?[")

_UNSEEN = "could not be validated"
_PURGE = ("purge_after", "policy", "clock", "fail_within")  # arguments of `forecast`, and options
_LEVELS: tuple[Level, ...] = ("present", "complete", "valid")
_WITH_VALUES = {
    "level=LEVEL": "How much to check: present (default), complete or valid.",
    "format=NAME": "The format; by default each directory's is recognized (shardproof formats).",
    "against=SOURCE": "What every directory must hold: hf://..., a list of digests or its address, "
    "another directory; write --shards-against=SOURCE",
    "purge-after=TEXT": "From which age the site's purge takes a file, such as 60d: fail before.",
    "policy=TEXT": "The same, as sites publish it: such as nersc-perlmutter.",
    "fail-within=TEXT": "How long before, by default 7d.",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and their twins for the configuration file."""
    group = parser.getgroup("shardproof", "shards directories (shardproof)")
    group.addoption(
        "--validate-shards",
        action="store_true",
        help="Validate shards directories: those named and those met in the test tree.",
    )
    group.addoption(
        "--shards-dir",
        action="append",
        metavar="PATH",
        default=[],
        help="Shards directory, root of several, or pattern; write --shards-dir=PATH; repeatable.",
    )
    group.addoption(
        "--shards-recursive",
        action="store_true",
        help="Look below named directories with --shards-format and --shards-against, too.",
    )
    for option, text in _WITH_VALUES.items():
        name, metavar = option.split("=")
        group.addoption(f"--shards-{name}", metavar=metavar, help=text)
    clocks, text = ("atime", "mtime", "ctime", "birth"), "By which its age is told; repeatable."
    group.addoption("--shards-clock", action="append", choices=clocks, default=[], help=text)
    parser.addini("validate_shards", "As --validate-shards.", type="bool", default=False)
    parser.addini(
        "shards_dirs",
        "As --shards-dir, one path a line, relative to this file.",
        type="linelist",
        default=_NOT_GIVEN,
    )
    parser.addini("shards_recursive", "As --shards-recursive.", type="bool", default=False)
    parser.addini("shards_level", "As --shards-level.", default="present")
    parser.addini(
        "needs_shards",
        "What becomes of a test whose needs_shards(path) is not whole: skip (default) or fail.",
        default="skip",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; take part in the run only if that was asked for."""
    config.addinivalue_line("markers", "shards: the validation of a shards directory (shardproof)")
    config.addinivalue_line(
        "markers",
        "needs_shards(path, ..., level=...): skip or fail unless they are whole (shardproof)",
    )
    # With a space, pytest takes the path for one of tests, and moves its rootdir there.
    given = {*config.invocation_params.args, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))}
    for option in ("--shards-dir", "--shards-against"):
        if option in given:
            raise pytest.UsageError(
                f"{option} PATH, with a space, makes pytest look for tests and its configuration "
                f"in PATH: write {option}=PATH"
            )
    asked = config.getoption("shards_level")
    where = "ini option shards_level" if asked is None else "--shards-level"
    asked = config.getini("shards_level") if asked is None else asked
    levels = {str(level): level for level in _LEVELS}
    if asked not in levels:
        known = ", ".join(levels)
        raise pytest.UsageError(f"{where}: expected one of {known}, found {quoted(asked)}")
    config.pluginmanager.register(NeedsShards(config, levels[asked]), "shardproof-needs")
    if config.getoption("validate_shards") or config.getini("validate_shards"):
        validation = _ShardsValidation(config, levels[asked])
        config.stash[VALIDATION] = validation
        config.pluginmanager.register(validation, "shardproof-validation")
        return
    for name in ("dir", "format", "against", *_PURGE):
        if config.getoption(f"shards_{name}") not in (None, []):
            option = f"--shards-{name}".replace("_", "-")
            raise pytest.UsageError(f"{option} does nothing without --validate-shards: give both")


def _known_format(config: pytest.Config) -> str | None:
    name: str | None = config.getoption("shards_format")
    if name is not None:
        from shardproof import formats  # noqa: PLC0415 - not before it is needed

        try:
            formats.get(name)
        except ValueError as error:
            raise pytest.UsageError(f"--shards-format: {told(error)}") from None
    return name


def _expectation(config: pytest.Config) -> str | None:
    """Return what to validate against; a path is one from where pytest starts."""
    given: str | None = config.getoption("shards_against")
    if given == "":
        raise pytest.UsageError(f"--shards-against=SOURCE: {_EMPTY}")
    if given is None or "://" in given:
        return given
    return os.path.abspath(config.invocation_params.dir / given)


def _named_directories(config: pytest.Config) -> list[Path]:
    given, listed = config.getoption("shards_dir"), config.getini("shards_dirs")
    if "" in given:
        raise pytest.UsageError(f"--shards-dir=PATH: {_EMPTY}")
    if not _NONE.isdisjoint(listed) or (not listed and listed is not _NOT_GIVEN):
        raise pytest.UsageError(f"ini option shards_dirs: {_EMPTY}")
    if any("://" in each for each in (*given, *listed)):
        problem = "expected a path, found an address: `shardproof validate` takes those"
        raise pytest.UsageError(f"--shards-dir, shards_dirs: {problem}")
    here = config.invocation_params.dir
    base = here if config.inipath is None else config.inipath.parent
    named = [*((here, path) for path in given), *((base, path) for path in listed)]
    found = itertools.chain.from_iterable(itertools.starmap(_matching, named))
    return [Path(os.path.abspath(path)) for path in found]


def _matching(base: Path, given: str) -> list[Path]:
    """Return what a path leads to, each part of which may be a pattern of the shell."""
    # Shells expand whole words only, and --shards-dir=/data/* is one of another beginning.
    try:
        if _PATTERN.isdisjoint(given) or is_there(base / given):
            return [base / given]
        found = [base]
        for part in Path(given).parts:
            is_name = _PATTERN.isdisjoint(part)
            names = [[part] if is_name else matching(each, part) for each in found]
            found = [each / name for each, some in zip(found, names, strict=True) for name in some]
        there = [path for path in found if is_there(path) and not is_regular(path)]
    except OSError as error:
        raise pytest.UsageError(f"'{shown(base / given)}' not searched: {told(error)}") from None
    if not there:
        raise pytest.UsageError(f"no directory matches '{shown(base / given)}'")
    return there


class _ShardsValidation:
    """Finds the shards directories of one run; registered as a plugin where one is asked for."""

    def __init__(self, config: pytest.Config, level: Level) -> None:
        self.level = level
        self.named = _named_directories(config)
        self.form = _known_format(config)
        self.against = _expectation(config)
        found = {name: config.getoption(f"shards_{name}") for name in _PURGE}
        self.purge: dict[str, Any] = {k: v for k, v in found.items() if v not in (None, [])}
        self.is_recursive = config.getoption("shards_recursive") or config.getini(
            "shards_recursive"
        )
        self._owners: dict[str, ShardsManifest] = {}

    def owns(self, node: ShardsManifest) -> bool:
        """Return whether this node is the first for its directory, by any path that leads there."""
        # Asked when a node is collected, not when it is made: pytest makes nodes that lie beside
        # what the command line names, and drops them.
        try:
            real = real_path(node.root)
        except OSError:  # which its item meets too, and reports
            real = os.fspath(node.root)
        return self._owners.setdefault(real, node) is node

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> ShardsDirectory | None:
        """Collect a directory of saev's data, without a look at what else is in it."""
        # Plans and checkpoints are known by names that others use too, and lie beside other things:
        # what is in their directories is collected as ever, and `pytest_collect_file` finds them.
        # A directory that is named to pytest, or that has something named in it, has its tests run.
        if parent.session.isinitpath(path, with_parents=True):
            return None
        is_data, doubt = _looked(is_there, path / signs.SAEV.manifest_file)
        if not is_data and doubt is None:
            return None
        node: ShardsDirectory = ShardsDirectory.from_parent(parent, path=path)
        node.doubt = doubt
        return node

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> ShardsManifest | None:
        """Collect a manifest file, where pytest collects files."""
        is_one, doubt = _looked(signs.is_manifest, file_path)
        if not is_one and doubt is None:
            return None
        return ShardsManifest.at(parent, file_path, doubt=doubt)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the directories named by option, wherever they are, to what the session collects."""
        # They don't become arguments of pytest: then it would import their ``conftest.py``, and
        # pytest-xdist's workers would not see them.
        report = yield
        for root in self._roots() if isinstance(collector, pytest.Session) else ():
            path = root / _manifest_name(root)
            node = ShardsManifest.at(collector, path, nodeid=shown_path(path.as_posix()))
            if self.owns(node):  # asked here, before the test tree's: a named one has one id
                report.result.append(node)
        return report

    def _roots(self) -> Iterator[Path]:
        """Yield the named directories, or those below them; a named one where there is none."""
        for root in self.named:
            below = []
            if self.is_recursive or not (self.form or self.against):
                from shardproof.formats import find  # noqa: PLC0415 - not before it is needed

                with contextlib.suppress(OSError):  # which the item of the root meets too
                    below = [Path(path) for path in find(root)]
            yield from below or [root]

    @pytest.hookimpl(tryfirst=True)  # before -k, -m and --deselect take items away
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Fail where there is nothing to validate: a job must not take that for a success."""
        if session.config.getoption("validate_shards") and not self._owners:
            items.append(NothingFoundItem.from_parent(session, name="shards-directory-found"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many directories were validated, and which failed."""
        # The last report about each directory; from pytest-xdist's workers too.
        looks: dict[str, tuple[dict[str, Any], bool]] = {}
        for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
            if isinstance(report, pytest.TestReport) and report.when == "call":
                properties = dict(report.user_properties)
                if "shards_dir" in properties:
                    looks[str(properties["shards_dir"])] = properties, report.failed
        if not looks and terminalreporter.config.option.collectonly:
            return
        failed = {root: counts for root, (counts, has_failed) in looks.items() if has_failed}
        n_files, n_unproven = (
            sum(counts.get(name, 0) for counts, _ in looks.values())
            for name in ("shards_files", "shards_unproven")
        )
        terminalreporter.section("shards directories")
        terminalreporter.write_line(
            f"{self.level}: {counted(len(looks), 'shards directory', 'shards directories')} with "
            f"{counted(n_files, 'file')} validated, {len(failed)} failed"
        )
        if n_unproven:
            lacking = "digest" if self.level == "valid" else "size or structure"
            files = counted(n_unproven, "file")
            tip = ": `shardproof seal` gives them one" if self.level == "valid" else ""
            terminalreporter.write_line(f"{files} without a {lacking} to prove{tip}")
        for root, counts in failed.items():
            n_findings = counts.get("shards_findings", 0)
            why = counts["shards_summary"] if n_findings else counts.get("shards_purge", _UNSEEN)
            terminalreporter.write_line(f"FAILED {shown(root)}: {why}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many failures of the kit's contracts hurt somebody, and which those are."""
    failed = terminalreporter.stats.get("failed", [])
    harms = [(dict(each.user_properties).get("shards_contract"), each.nodeid) for each in failed]
    unsafe = [nodeid for harm, nodeid in harms if harm == "unsafe"]
    n_manners = [harm for harm, _ in harms].count("manners")
    if unsafe or n_manners:
        terminalreporter.section("shards contracts")
        terminalreporter.write_line(f"failed: {len(unsafe)} unsafe, {n_manners} only for manners")
        for nodeid in unsafe:
            terminalreporter.write_line(f"unsafe: {nodeid}")


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Collect a shards directory without the import of its ``conftest.py`` that pytest would do."""
    if not isinstance(collector, ShardsDirectory):
        return None
    return pytest.CollectReport(collector.nodeid, "passed", None, [*collector.collect()])


def _manifest_name(root: Path) -> str:
    """Return what the node of a directory is called: its manifest file, or what would be one."""
    from shardproof import ShardproofError, formats  # noqa: PLC0415 - not before it is needed

    with contextlib.suppress(OSError, ShardproofError):  # which its item meets too, and reports
        name = signs.manifest_name(root)
        if name != signs.SAEV.manifest_file or is_there(root / name):
            return name
        return os.path.basename(formats.detect(real_path(root)).manifest_file)
    return signs.SAEV.manifest_file


def _looked(look: Callable[[Path], bool], path: Path) -> tuple[bool, OSError | None]:
    """Return what a look says; or why it failed, which an item reports."""
    try:
        return look(path), None
    except OSError as error:
        return False, error
