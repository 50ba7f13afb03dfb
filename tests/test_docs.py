"""What the documentation shows works as it stands there."""

import doctest
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import shardproof
from shardproof import receipts, testing
from shardproof.testing.samples import receipts as samples
from tests.helpers import ROOT
from tests.helpers.pages import PAGES

MODULES = [
    module.name
    for module in pkgutil.walk_packages(shardproof.__path__, "shardproof.")
    # torch is where users have it; tests/interop runs there
    if not module.name.endswith(("__main__", "loaders._torch"))
]


NEEDS = {
    "shardproof.datasets.rows._card": "yaml",
    "shardproof.fetching.sources._hub": "huggingface_hub",
}
"""What an example imports."""


def has_examples(name: str) -> bool:
    return ">>>" in Path(importlib.util.find_spec(name).origin).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(filter(has_examples, MODULES)))
def test_examples_in_docstrings(name: str, make_shards_dir, tmp_path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    module = importlib.import_module(name)
    text_dir = tmp_path / "text"
    text_dir.mkdir()
    for letter in "ab":
        (text_dir / f"{letter}.txt").write_text(letter)
    corpus = receipts.input_files(text_dir)
    run = receipts.open_run(tmp_path / "out", datasets=["corpus"])
    names = {
        **vars(shardproof),
        **{name: getattr(testing, name) for name in testing.__all__},
        **vars(module),
        "os": os,
        "text_dir": text_dir,
        "output_dir": tmp_path / "output",
        "plan_dir": run.store(receipts.make_plan("corpus", corpus, n_shards=3)).path,
        "shards_dir": vars(module).get("shards_dir", make_shards_dir(3)),
        "unreadable": make_shards_dir(1, unreadable_shards=[0]) / "acts000000.bin",
    }
    for test in doctest.DocTestFinder().find(module, name, globs=names):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test)
        assert runner.failures == 0, test.name


def links(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text)
    return [(path, anchor) for path, anchor in found if not path.startswith("http")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", target.read_text())
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor[1:] in slugs, anchor


def test_each_page_is_in_the_navigation_once() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]]
    assert sorted(re.findall(r"(?m)\S+\.md$", nav)) == sorted(pages)


def test_each_public_name_is_in_the_list_of_them() -> None:
    named = set(re.findall(r"(?m)^::: shardproof\.(\S+)$", (ROOT / "docs" / "api.md").read_text()))
    rooms = {"datasets", "errors", "fetching"} & named  # of which all names are shown
    inside = {name for room in rooms for name in getattr(shardproof, room).__all__}
    modules = dict(inspect.getmembers(shardproof, inspect.ismodule))
    assert set(shardproof.__all__) - modules.keys() <= named | inside


def test_no_line_of_a_script_loses_an_exit_code() -> None:
    """A command in the argument of another one does: the shell knows only the other's code."""
    texts = [*PAGES, *(ROOT / "src").rglob("*.py")]
    lines = [line for text in texts for line in text.read_text().splitlines()]
    inside = [line for line in lines if re.search(r"\$\((python -m )?shardproof ", line)]
    assert len(inside) >= 5
    warning = re.compile(r"# not: .*|as in train .*")
    for line in inside:
        assert not re.search(r'[^=]"?\$\((python -m )?shardproof ', warning.sub("", line)), line


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", [{}, {"missing": [1]}])
def test_the_job_script_of_the_page_about_staging(tmp_path, damage: dict) -> None:
    """Run with stubs of slurm and of the training: it begins with a copy that is whole, or not."""
    page = (ROOT / "docs" / "staging.md").read_text()
    script = re.search(r"```sh\n(#!/bin/bash.*?)```", page, re.DOTALL)
    shards_dir = testing.write_layout(testing.Layout(n_shards=2, **damage), tmp_path / "source")
    assert script
    text = script[1].replace("/project/me/saev/shards/abc12345", str(shards_dir))
    for name, code in {
        "srun": 'while [[ $1 == --* ]]; do shift; done; "$@"',
        "shardproof": f'exec {sys.executable} -m shardproof "$@"',
        "python": 'echo "trained on $2"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    # Whole, and without the first line that stages, so that the second one is tried alone.
    for lines in (text, re.sub(r"(?m)^srun .*\|\| exit\n", "", text)):
        command = ["bash", "-c", lines]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert (done.returncode, "trained" in done.stdout) == ((1, False) if damage else (0, True))
        assert damage or f"trained on {tmp_path}/shardproof-" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_shown_in_the_pages_is_python(page: Path) -> None:
    for code in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL):
        compile(code, str(page), "exec")


def files_of(page: Path) -> dict[str, str]:
    return dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', page.read_text(), re.DOTALL))


@pytest.fixture
def outcomes(pytester: pytest.Pytester) -> Callable[..., dict[str, int]]:
    def outcomes(files: dict[str, str], name: str) -> dict[str, int]:
        for each, text in files.items():
            (pytester.path / each).write_text(text)
        return pytester.runpytest_subprocess("-pno:cacheprovider", "-Werror", name).parseoutcomes()

    return outcomes


@pytest.mark.exhaustive
def test_the_kits_page_holds_three_test_files_that_pass(outcomes) -> None:
    files = files_of(ROOT / "docs" / "testing-kit.md")
    tests = [name for name in files if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        assert outcomes(files, name).keys() - {"skipped"} == {"passed"}, name
    strict = files[name].replace('strength = "safe"', 'strength = "strict"')
    assert outcomes(files | {name: strict}, name).keys() == {"passed"}


@pytest.mark.exhaustive
def test_the_page_of_the_receipts_kit_holds_a_test_file_that_passes(outcomes) -> None:
    files = files_of(ROOT / "docs" / "receipts-kit.md")
    assert outcomes(files, "test_resume.py") == {"passed": 9}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("loopback-hub.md", marks=pytest.mark.slow),
        pytest.param("fake-file-system.md", marks=pytest.mark.exhaustive),
    ],
)
def test_pages_that_begin_with_a_test_file_that_passes(page: str, outcomes) -> None:
    text = (ROOT / "docs" / page).read_text()
    first = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert outcomes({"test_page.py": first}, "test_page.py").keys() == {"passed"}


def test_the_kits_page_names_every_state() -> None:
    page = (ROOT / "docs" / "testing-kit.md").read_text()
    section = page[page.index("## States") : page.index("## A directory that lives")]
    named = set(re.findall(r"`([a-z]+)`", "".join(re.findall(r"(?m)^\| (`[^|]*)\|", section))))
    assert named == {state.value for state in testing.ShardState} - {"ok"}


def test_the_page_of_the_receipts_kit_says_when_each_state_is_done() -> None:
    page = (ROOT / "docs" / "receipts-kit.md").read_text()
    said = {}
    for keywords, levels in re.findall(r"(?m)^\| (`.*`) \| .* \| (never|always|`.*`) \|$", page):
        done_at = levels.replace("always", "`present`, `complete`, `valid`")
        said |= dict.fromkeys(re.findall(r"`(\w+)`", keywords), re.findall(r"`(\w+)`", done_at))
    for state in set(samples.ReceiptState) - {samples.ReceiptState.OK}:
        value = testing.Layout.of([state], format="receipts")
        levels = ("present", "complete", "valid")
        is_so = [level for level in levels if not samples.expected_pending(value, level=level)]
        assert said.pop(state.value) == is_so, state
    assert not said


def test_what_the_validate_page_says_of_limits_is_so() -> None:
    from shardproof._base import json

    page = (ROOT / "docs" / "validate.md").read_text()
    assert f"larger than {json.MAX_BYTES // 2**20} MiB" in page
    assert f"more than {json.MAX_ITEMS // 10**6} million values" in page


class TestPrepare:
    """The script of docs/receipts.md."""

    @pytest.fixture
    def run(self, tmp_path):
        (tmp_path / "prepare.py").write_text(files_of(ROOT / "docs" / "receipts.md")["prepare.py"])
        corpus = tmp_path / "corpus"
        corpus.mkdir()
        for name in "abc":
            (corpus / f"{name}.txt").write_text(f"{name} is a text\n" * (ord(name) - 90))

        def run(output_dir: Path) -> subprocess.Popen:
            command = [sys.executable, "prepare.py", str(corpus), str(output_dir)]
            return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

        return run

    def test_it_makes_each_shard_once(self, run, tmp_path) -> None:
        with run(tmp_path / "out") as job:
            _, log = job.communicate()
        assert job.returncode == 0, log
        (plan_dir,) = (tmp_path / "out").glob("runs/*/datasets/corpus/*")
        assert shardproof.ReceiptStore(plan_dir).pending(level="valid") == []
        tokens = b"".join(path.read_bytes() for path in sorted(plan_dir.glob("*.bin")))
        texts = b"".join(path.read_bytes() for path in (tmp_path / "corpus").glob("*.txt"))
        assert sorted(tokens[::2]) == sorted(texts)

    @pytest.mark.exhaustive
    def test_it_goes_on_where_it_stopped(self, run, tmp_path) -> None:
        with run(tmp_path / "whole") as job:
            job.communicate()
        with run(tmp_path / "out") as job:
            assert job.stderr is not None
            job.stderr.readline()  # of the first shard
            job.terminate()
            job.communicate()
        (plan_dir,) = (tmp_path / "out").glob("runs/*/datasets/corpus/*")
        (plan_dir / "shard_000000.bin").unlink(missing_ok=True)
        with run(tmp_path / "out") as job:
            _, log = job.communicate()
        assert job.returncode == 0, log
        (whole,) = (tmp_path / "whole").glob("runs/*/datasets/corpus/*")
        for path in whole.glob("*.bin"):
            assert (plan_dir / path.name).read_bytes() == path.read_bytes()


def test_the_script_that_reads_shards_from_elsewhere(shard_hub, tmp_path) -> None:
    text = files_of(ROOT / "docs" / "prefetch.md")["read_shards.py"]
    (tmp_path / "read_shards.py").write_text(text)
    names = [f"{n}.bin" for n in range(3)]
    for n, name in enumerate(names):
        shard_hub.put(f"shards/{name}", bytes(n + 1))
    command = [sys.executable, "read_shards.py", f"{shard_hub.url}/shards", *names]

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert run.returncode == 0, run.stderr
    assert run.stdout == "0.bin 1\n1.bin 2\n2.bin 3\n"
    assert [path.name for path in (tmp_path / "cache").rglob("*.bin")] == ["2.bin"]
