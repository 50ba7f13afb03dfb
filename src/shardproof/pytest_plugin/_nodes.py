"""The nodes of pytest's tree that a shards directory becomes, so that all of pytest applies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from shardproof._base.messages import shown, told
from shardproof.formats import signs

if TYPE_CHECKING:
    from shardproof import Forecast, Level

_NOTHING_FOUND = """\
No shards directory was found, and --validate-shards was given.

Name one with --shards-dir=PATH or with the ini option shards_dirs. A directory of the test tree
is found by its manifest file ({files}), unless norecursedirs, collect_ignore or --ignore hide it
or the paths on the command line lead elsewhere."""


class Validation(Protocol):
    """What nodes ask of the run that they are in."""

    level: Level
    form: str | None
    against: str | None
    purge: dict[str, Any]

    def owns(self, node: ShardsManifest) -> bool:
        """Return whether this node is the first for its directory."""


VALIDATION = pytest.StashKey["Validation"]()


def shown_path(text: str) -> str:
    """Return a path for terminals and JUnit files: what is no text is escaped."""
    return shown(text.encode(errors="surrogateescape").decode(errors="backslashreplace"))


class _Node:
    """What the nodes of a shards directory have in common: names to print, and hooks."""

    name: str
    parent: Any
    path: Path

    @property
    def root(self) -> Path:
        """The shards directory, of the manifest file or its item."""
        return self.path.parent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown_path(self.name)}>"

    @property
    def ihook(self) -> Any:
        """The parent's hooks: in the end those of a directory of tests, or of the session."""
        # By its own path pytest would find none: it knows only directories whose ``conftest.py`` it
        # has looked for.
        return self.parent.ihook


class ShardsDirectory(_Node, pytest.Directory):
    """A directory of saev's data in the test tree; nothing but its manifest file is collected."""

    doubt: OSError | None = None  # why it could not be seen whether it is one

    def collect(self) -> Iterable[ShardsManifest]:
        """Yield the manifest file, unread."""
        yield ShardsManifest.at(self, self.path / signs.SAEV.manifest_file, doubt=self.doubt)


class ShardsManifest(_Node, pytest.File):
    """The manifest file of a shards directory, which need not be there."""

    doubt: OSError | None = None

    @classmethod
    def at(
        cls, parent: pytest.Collector, path: Path, *, nodeid: str = "", doubt: OSError | None = None
    ) -> ShardsManifest:
        """Return the node of a manifest file; ``-k`` finds its items by the directory's name."""
        # Pytest's own id inside the rootdir; outside it two paths would share one.
        root = parent.config.rootpath
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        nodeid = nodeid or shown_path(inside.as_posix())
        node: ShardsManifest = cls.from_parent(parent, path=path, nodeid=nodeid)
        node.doubt = doubt
        node.extra_keyword_matches.add(path.parent.name)
        return node

    def collect(self) -> Iterable[ShardsItem]:
        """Yield one item, without a look at the manifest: a broken one fails, it is no error."""
        validation = self.config.stash[VALIDATION]
        if validation.owns(self):
            yield ShardsItem.from_parent(self, name=validation.level)


class ShardsItem(_Node, pytest.Item):
    """The validation of one shards directory at one level, which is the item's name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker("shards")

    def runtest(self) -> None:
        """Validate; what is found travels with the test report to JUnit XML and the summary."""
        # Not before they are needed.
        from shardproof import ManifestNotFoundError, validate  # noqa: PLC0415

        self.user_properties += [
            ("shards_dir", shown_path(str(self.root))),
            ("shards_level", self.name),
        ]
        asked = self.config.stash[VALIDATION]
        try:
            # First, since a check reads the manifest, which may renew its atime.
            soon = self._forecast(asked.form, asked.purge) if asked.purge else None
            report = validate(
                self.root, level=asked.level, format=asked.form, against=asked.against
            )
        except ManifestNotFoundError:
            if self.parent.doubt is not None:  # it may have been there when nobody could look
                raise self.parent.doubt from None
            raise
        self.user_properties += [
            ("shards_files", report.n_files),
            ("shards_unproven", len(report.unproven)),
            ("shards_findings", report.n_findings),
            ("shards_summary", report.summary),
        ]
        report.raise_for_findings()
        if soon is not None:
            self.user_properties.append(("shards_purge", str(soon).partition("\n")[0]))
            if not soon.ok:
                pytest.fail(str(soon), pytrace=False)

    def _forecast(self, form: Any, purge: dict[str, Any]) -> Forecast:
        from shardproof import forecast  # noqa: PLC0415 - as above

        return forecast(self.root, **{"format": form, "fail_within": "7d", **purge})

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report's text, or the manifest's error: a traceback would say nothing."""
        from shardproof import ShardproofError, ShardValidationError  # noqa: PLC0415 - as above

        error = excinfo.value
        if isinstance(error, ShardValidationError):
            if not error.report.n_unseen:
                return told(error)
            files = counted(error.report.n_unseen, "file")
            blind = {each.found for each in error.report.findings if not each.conclusive}
            why = ", ".join(sorted(blind))
            return f"{told(error)}\n\nOf these, {files} could not be looked at ({why})."
        # No source has such an address, what it needs is not installed, or an age is no age.
        asked = self.config.stash[VALIDATION]
        is_promise = isinstance(error, (ImportError, ValueError))
        if isinstance(error, ShardproofError) or (is_promise and (asked.against or asked.purge)):
            return told(error)
        if isinstance(error, OSError):
            return (
                f"The shards directory '{shown(self.root)}' could not be looked at: {told(error)}\n"
                "Its shards may be whole: this is no finding about them."
            )
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the headline of a failure."""
        title = f"shards directory {shown_path(str(self.root))} ({self.name})"
        return Path(shown_path(str(self.path))), None, title


class NothingFoundItem(pytest.Item):
    """Fails: validation was asked for, and there is nothing to validate."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, nodeid="shards::shards-directory-found")
        self.add_marker("shards")

    def runtest(self) -> None:
        """Fail, with what to do about it."""
        files = ", ".join(sign.manifest_file for sign in signs.FORMATS)
        pytest.fail(_NOTHING_FOUND.format(files=files), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the headline of the failure."""
        return self.path, None, "--validate-shards"


def counted(n: int, one: str, more: str = "") -> str:
    """Return a count with its noun, of one or of several."""
    return f"{n} {one if n == 1 else more or one + 's'}"
