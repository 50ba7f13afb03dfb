"""What every module owes that reads a format's manifest."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardproof.testing.contracts._child import Raised, left_by, snapshot
from shardproof.testing.contracts._contract import MANY, Contract, Harm
from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._oracle import KINDS
from shardproof.testing.samples._states import ShardState, apply_states
from shardproof.testing.strategies import hostile_json, hostile_names, twin_names


class FormatContract(Contract):
    """Tests for a new format: define the fixture ``form``, and say how a directory of it is made.

    ::

        class TestMDS(FormatContract):
            manifest_name = "index.json"

            @pytest.fixture
            def form(self):
                return shardproof.formats.get("mds")

            def write_dir(self, value, base):
                ...

    What is asked of a format is two functions, each called with the directory as a str:
    ``recognizes(path)``, and ``read_manifest(path)``, of whose `Manifest` the contract looks at
    ``root``, ``path``, ``files`` and ``probe``.

    Attributes:
        manifest_name: The file that lists the shards; JSON.
        refusal: Name of the exception class of which every refusal is.
        max_examples: How many hostile manifests each property test makes.
        deadline: Seconds after which a look counts as a hang; a property test has 25 times as many.
    """

    manifest_name = "shards.json"
    refusal = "ManifestError"
    max_examples = 200

    @pytest.fixture
    def root(self) -> Path:
        """A whole directory of three shards, by its real path."""
        whole = self.new_dir(Layout(n_shards=3)).path
        return Path(os.path.realpath(whole, strict=True))  # noqa: TID251 - it raises

    def refused(self, form: Any, root: Path) -> Raised:
        """Read, and return the refusal."""

        def read() -> None:
            form.read_manifest(str(root))

        error = self.raised(self.look(read, "read the manifest"), Harm.UNSAFE)
        is_one = self.refusal in error.kinds
        self.demand(is_one, f"expected {self.refusal}: {error.report}", Harm.UNSAFE)
        return error

    def test_a_whole_directory_is_claimed(self, form: Any, root: Path) -> None:
        """By looking at it, without a change."""
        before = snapshot(root)
        assert form.recognizes(str(root))
        assert snapshot(root) == before

    def test_a_directory_without_shards_is_claimed(self, form: Any, root: Path) -> None:
        """What a purge leaves: the manifest alone."""
        for shard in self.shard_files(root):
            shard.unlink()
        assert form.recognizes(str(root))

    @pytest.mark.parametrize("content", [[], ["README.md", "data.bin", "index.txt"]])
    def test_other_directories_are_not_claimed(
        self, form: Any, tmp_path: Path, content: Sequence[str]
    ) -> None:
        """Nor is an empty one."""
        other = tmp_path / "other"
        other.mkdir()
        for name in content:
            (other / name).write_bytes(b"text")
        assert not form.recognizes(str(other))

    def test_every_shard_is_promised_once(self, form: Any, root: Path) -> None:
        """By its name relative to the directory."""
        names = [file.name for file in form.read_manifest(str(root)).files]
        shards = [shard.relative_to(root).as_posix() for shard in self.shard_files(root)]
        assert sorted(set(names) & set(shards)) == sorted(shards)
        assert len(set(names)) == len(names)

    def test_promises_of_a_whole_directory_are_kept(self, form: Any, root: Path) -> None:
        """Sizes are those of the files, and the probe finds nothing."""
        manifest = form.read_manifest(str(root))
        for file in manifest.files:
            size = (root / file.name).stat().st_size
            assert file.size in {None, size}, (
                f"{file.name}: the manifest states {file.size} bytes, found {size}"
            )
            assert _probe(manifest, file) is None

    @pytest.mark.parametrize("state", [ShardState.TRUNCATED, ShardState.EXTENDED])
    def test_another_size_shows(self, form: Any, root: Path, state: ShardState) -> None:
        """By the stated size or to the probe: that is what level ``complete`` is for."""
        shards = self.shard_files(root)
        apply_states(shards, [state] * len(shards))
        manifest = form.read_manifest(str(root))
        names = {shard.relative_to(root).as_posix() for shard in shards}
        for file in manifest.files:
            if file.name in names:
                size = (root / file.name).stat().st_size
                kept = file.size in {None, size} and _probe(manifest, file) is None
                assert not kept, f"{file.name} is {state}, and nothing shows it"

    def test_the_promise_does_not_depend_on_what_is_there(self, form: Any, root: Path) -> None:
        """A missing shard is listed like any other."""
        whole = _stated(form.read_manifest(str(root)))
        self.shard_files(root)[1].unlink()
        assert _stated(form.read_manifest(str(root))) == whole

    def test_paths_are_absolute(self, form: Any, root: Path) -> None:
        """Those of the directory and of the file that refusals name."""
        manifest = form.read_manifest(str(root))
        assert Path(manifest.root) == root
        assert Path(manifest.path) == root / self.manifest_name

    def test_no_shard_is_opened(self, form: Any, root: Path) -> None:
        """A manifest is read without its shards, of which there may be a hundred thousand."""
        shards = {str(shard) for shard in self.shard_files(root)}
        with FileSystemFaults(root) as fs:
            form.recognizes(str(root))
            form.read_manifest(str(root))
        opened = {str(call.path) for call in fs.calls if call.operation == "open"}
        assert not opened & shards

    def test_a_missing_manifest_is_refused(self, form: Any, root: Path) -> None:
        """With its path."""
        (root / self.manifest_name).unlink()
        assert str(root / self.manifest_name) in self.refused(form, root).text

    @pytest.mark.parametrize(
        "state", [*(s for s in KINDS["complete"] if s not in {"missing", "extended"}), "sparse"]
    )
    def test_a_damaged_manifest_is_refused(self, form: Any, root: Path, state: str) -> None:
        """With its path, and without waiting for a writer to a FIFO."""
        apply_states([root / self.manifest_name], [state])
        assert str(root / self.manifest_name) in self.refused(form, root).text

    def test_an_error_of_the_file_system_passes_through(self, form: Any, root: Path) -> None:
        """EIO: the manifest may be whole, and must not be written anew."""

        def read_with_eio() -> str:
            with FileSystemFaults(root) as fs:
                fs.fail("open", errno.EIO, match=self.manifest_name)
                try:
                    form.read_manifest(str(root))
                except OSError as error:
                    return errno.errorcode[error.errno or 0]
            return "nothing"

        found = self.returned(self.look(read_with_eio, "read the manifest, which fails with EIO"))
        assert found == "EIO"

    def test_hostile_json_is_refused(self, form: Any, root: Path) -> None:
        """Whatever it is, with the path of the file."""
        text = (root / self.manifest_name).read_bytes()
        self._refuses_all(form, root, hostile_json(json.loads(text)))

    def test_hostile_names_are_refused(self, form: Any, root: Path) -> None:
        """Those that leave the directory, or are another file elsewhere."""
        rename = self._renamed(root)
        self._refuses_all(form, root, hostile_names().map(lambda name: rename([name])))

    def test_twins_are_refused(self, form: Any, root: Path) -> None:
        """Two names that are one file on some file systems."""
        self._refuses_all(form, root, twin_names().map(self._renamed(root)))

    def test_nothing_from_the_manifest_is_executed(self, form: Any, root: Path) -> None:
        """No pickle is loaded, no text compiled, no program started, no connection made."""

        def events() -> list[str]:
            form.read_manifest(str(root))  # what is imported late is imported now
            seen: list[str] = []
            sys.addaudithook(lambda event, _: seen.append(event) if event in _EXECUTES else None)
            form.recognizes(str(root))
            form.read_manifest(str(root))
            return seen

        assert self.returned(self.look(events, "read the manifest three times")) == []

    def test_nothing_is_left_behind(self, form: Any, root: Path) -> None:
        """No descriptor or thread, and the directory as it was; after a refusal too."""
        files = snapshot(root)

        def refused() -> None:
            with contextlib.suppress(Exception):
                form.read_manifest(str(root))

        def left() -> list[str]:
            found = left_by(lambda: form.read_manifest(str(root)))
            (root / self.manifest_name).write_bytes(b"[")
            return found + left_by(refused)

        assert self.returned(self.look(left, "read the manifest eight times", looks=8)) == []
        assert (root / self.manifest_name).read_bytes() == b"["
        assert set(snapshot(root)) == set(files)

    def _renamed(self, root: Path) -> Callable[[Iterable[str]], str]:
        """Return a function that gives the manifest with other names for its first shards."""
        text = (root / self.manifest_name).read_text(encoding="utf-8")
        names = [shard.relative_to(root).as_posix() for shard in self.shard_files(root)]

        def renamed(others: Iterable[str]) -> str:
            told = text
            for name, other in zip(names, others, strict=False):
                told = told.replace(json.dumps(name), json.dumps(other))
            return told

        return renamed

    def _refuses_all(self, form: Any, root: Path, texts: st.SearchStrategy[Any]) -> None:
        path = root / self.manifest_name

        @settings(max_examples=self.max_examples, deadline=None)
        @given(text=texts)
        def refuses(text: str | bytes) -> None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            with pytest.raises(Exception) as refused:  # noqa: PT011 - which, is what is asked next
                form.read_manifest(str(root))
            kinds = [kind.__name__ for kind in type(refused.value).__mro__]
            assert self.refusal in kinds, f"expected {self.refusal}: {refused.value!r}"
            assert str(path) in str(refused.value), f"{path} is not named in: {refused.value}"

        self.returned(self.look(refuses, f"read {self.max_examples} manifests", looks=MANY))


_EXECUTES = {
    *("compile", "exec", "import", "marshal.loads", "os.exec", "os.posix_spawn", "os.system"),
    *("pickle.find_class", "socket.connect", "subprocess.Popen"),
}


def _stated(manifest: Any) -> list[tuple[str, int | None, str | None]]:
    return [(file.name, file.size, file.digest) for file in manifest.files]


def _probe(manifest: Any, file: Any) -> Any:
    """Return what the format's structural probe says of a file, if it has one."""
    if manifest.probe is None:
        return None
    with open(os.path.join(manifest.root, file.name), "rb", buffering=0) as opened:
        read = _ReadingDescriptor(opened.fileno())
        return manifest.probe(file, read, os.fstat(read).st_size)


class _ReadingDescriptor(int):
    """What a probe is given: it reads so many bytes, and is a descriptor as well."""

    def __call__(self, n_bytes: int, offset: int = 0) -> bytes:
        return os.pread(self, n_bytes, offset)
