"""The fixtures over the kit's faults, server and fake file system."""

import pytest

from tests.helpers.descriptors import needs_proc

# Warnings are errors, but for the one about a run inside a run with --assert=plain.
WARNINGS = ("-Werror", "-Wignore::pytest.PytestAssertRewriteWarning")


def test_faults_and_a_server_end_with_the_test_and_faults_must_be_reached(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import errno
        import urllib.error
        import urllib.request

        import pytest

        def test_never_reached(make_shards_dir, make_shard_faults):
            global path
            path = make_shards_dir(1)
            make_shard_faults(path).fail("open", errno.EIO)

        def test_it_serves(shard_hub):
            global url
            url = shard_hub.put("a.bin", b"bytes")
            with urllib.request.urlopen(url, timeout=10) as response:
                assert response.read() == b"bytes"

        def test_afterwards():
            assert (path / "shards.json").read_bytes()
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(url, timeout=10)
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *WARNINGS)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*never reached*"])


@pytest.mark.slow
def test_a_fake_file_system_until_the_test_ends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import numpy as np
        import pytest

        def test_fake(make_fake_shards_dir, tmp_path, capfd):
            assert tmp_path.is_dir()
            path = make_fake_shards_dir(n_shards=2, missing_shards=[0], unreadable=[1])
            assert not tmp_path.exists()
            assert str(path).startswith("/scratch/")
            with pytest.raises(PermissionError):
                open(path / "acts000001.bin")
            os.write(1, b"written")
            assert capfd.readouterr().out == "written"

        def test_held_back(make_fake_shards_dir):
            try:
                np.memmap(make_fake_shards_dir() / "acts000000.bin")
            except BaseException:
                pass

        def test_afterwards(tmp_path):
            assert tmp_path.is_dir()
            assert not os.path.exists("/scratch/0")
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["E*NotFakedError: mmap.mmap*"])


@needs_proc
@pytest.mark.parametrize(
    ("fixture", "keywords", "name"),
    [
        ("make_shards_dir", {"unreadable_shards": [1]}, "acts000001.bin"),
        ("make_receipts_dir", {"unreadable": [1]}, "shard_000001.bin"),
        ("make_checkpoint", {"metadata": "unreadable"}, "model.metadata.json"),
    ],
)
def test_unreadable_is_unreadable_until_the_test_ends(fixture, keywords, name, pytester) -> None:
    pytester.makepyfile(f"""
        import pytest
        from pathlib import Path

        def capabilities():
            return Path("/proc/thread-self/status").read_text().split("CapEff:")[1].split()[0]

        before, paths = capabilities(), []

        def test_unreadable({fixture}):
            {fixture}()
            assert capabilities() == before
            made = {fixture}(**{keywords!r})
            paths.append((made if made.is_dir() else made.parent) / {name!r})
            {fixture}(**{keywords!r})
            with pytest.raises(PermissionError):
                paths[0].read_bytes()

        def test_afterwards():
            assert capabilities() == before
            assert paths[0].read_bytes()
    """)
    pytester.runpytest_inprocess(*WARNINGS).assert_outcomes(passed=2)
