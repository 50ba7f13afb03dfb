"""Whatever a server does wrong: the right bytes under the name, or an error and nothing."""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from shardproof import FetchError, SourceError
from shardproof.fetching import (
    Cancellation,
    FetchResult,
    HttpSource,
    HubSource,
    Limits,
    ReadRequest,
    RemoteFile,
    Source,
    fetch_file,
)
from tests.attacks.http_harms import DATA, HALF, HARMS, SECRET, Harm, Known, right_answer, sent
from tests.attacks.raw_server import MOST_TOLD, NOT_FOUND, Asking, RawServer, Request, Step
from tests.attacks.tally import Tally
from tests.helpers.kept_parts import beside_parts

DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
TIMES = {"timeout": 3.0, "stall_timeout": 0.5, "max_backoff": 0.01, "deadline": 8.0}
LIMITS = Limits(attempts=2, max_unsized_bytes=2**24, **TIMES)
PATIENT = Limits(attempts=1, stall_timeout=30.0)
IN_TIME = 60.0  # seconds; what hangs takes longer
MOST_MEMORY = 256 * 2**20


class Case(NamedTuple):
    name: str
    known: Known
    goes_on: bool

    def __str__(self) -> str:
        return f"{self.name}, {'going on' if self.goes_on else 'fresh'}, {self.known} known"

    @property
    def harm(self) -> Harm:
        return HARMS[self.name]


CASES = [
    Case(name, known, goes_on)
    for name in HARMS
    for known in get_args(Known)
    for goes_on in (False, True)
]
assert len(HARMS) > 400

Fetch = Callable[[Case, str, Path], object]


def our_fetch(case: Case, url: str, target: Path, limits: Limits = LIMITS) -> FetchResult:
    source = HttpSource(url, headers={"Authorization": f"Bearer {SECRET}", "X-Key": SECRET})
    file = None if case.known == "asked" else RemoteFile("x.bin")
    if case.known == "size":
        file = RemoteFile("x.bin", size=len(DATA))
    digest = DIGEST if case.known == "digest" else None
    try:
        return fetch_file(source, "x.bin", target, file=file, digest=digest, limits=limits)
    finally:
        source.close()


def naive_fetch(case: Case, url: str, target: Path) -> None:
    """The control: a read loop over urllib, as many write it."""
    headers = {"Range": f"bytes={HALF}-"} if case.goes_on else {}
    request = urllib.request.Request(f"{url}/x.bin", headers=headers)
    with target.open("wb") as file, urllib.request.urlopen(request, timeout=0.5) as response:
        file.write(DATA[:HALF] if case.goes_on else b"")
        end = time.monotonic() + 5
        while (block := response.read(2**16)) and time.monotonic() < end:
            file.write(block)


class Attack(Asking):
    n_at_once = 12

    def __init__(self, tally: Tally, cases: Sequence[Case], fetch: Fetch, root: Path) -> None:
        super().__init__(tally, cases, root)
        self._fetch, self._halved = fetch, set[int]()

    def run(self) -> list[Request]:
        """Run them all; what is secret goes to no other host."""
        requests = super().run()
        for request in requests:
            is_ours = f"http://{request.headers.get('host')}" == self.url
            if not is_ours and SECRET in str(request.headers):
                self.harm("lie", request.target, "a secret went to a stranger")
        return requests

    def answer(self, number: int, request: Request) -> Iterable[Step]:
        if number in self._halved:
            answer = right_answer(request)
            is_head = request.method == "HEAD"
            return [answer.head(), "keep"] if is_head else [answer.head() + answer.body[:HALF]]
        harm = self.cases[number].harm
        if request.method == "HEAD" and not harm.heads:
            return [right_answer(request).head(), "keep"]
        return harm.send(request, right_answer(request))

    def ask(self, number: int, case: Case, path: Path) -> None:
        target, url = path / "x.bin", f"{self.url}/{number}"
        if case.goes_on:
            self._leave_half(case, number, url, target)
        began = time.monotonic()
        error = self._outcome(case, url, target)
        if time.monotonic() - began > IN_TIME:
            self.harm("hang", case, f"{time.monotonic() - began:.0f} s")
        self._judge(case, target, error)

    def _leave_half(self, case: Case, number: int, url: str, target: Path) -> None:
        self._halved.add(number)
        with pytest.raises(FetchError, match="bytes are kept"):
            our_fetch(case, url, target, PATIENT)
        self._halved.remove(number)

    def _outcome(self, case: Case, url: str, target: Path) -> str | None:
        try:
            fetched = self._fetch(case, url, target)
        except FetchError as error:
            return str(error)
        except Exception as error:  # which is what is looked for
            self.harm("wrong class", case, f"{type(error).__name__}: {error}"[:500])
            return ""
        if isinstance(fetched, FetchResult) and fetched.proven != (case.known == "digest"):
            self.harm("lie", case, f"proven is {fetched.proven}")
        return None

    def _judge(self, case: Case, target: Path, error: str | None) -> None:
        there = sorted(os.listdir(target.parent))
        if error is None:
            found = target.read_bytes() if target.exists() else b""
            if not self._is_right(case, found):
                self.harm("lie", case, f"{len(found)} wrong bytes, {found[:20]!r}")
            left = [name for name in there if name != target.name]
        else:
            self.judge_text(case, error)
            if SECRET in error:
                self.harm("lie", case, f"a secret in {error[:300]!r}")
            if target.name in there:
                self.harm("torn", case, f"{error[:300]}, and it is there")
            left = sorted(beside_parts(target.parent) - {target.name})
        if left:
            self.harm("leftover", case, f"{left}")

    def _is_right(self, case: Case, found: bytes) -> bool:
        """Whether they are the bytes, or some that nobody could tell from them."""
        harm = case.harm
        if found == DATA:
            return True
        if found == harm.whole:
            return case.known != "digest" and (case.known != "size" or len(found) == len(DATA))
        is_page = b"<html" in found[:20].lower() or b"<!doctype" in found[:20].lower()
        is_first = case.known == "nothing" or (case.known == "asked" and not case.goes_on)
        has_size = is_first or len(found) == len(DATA)
        return case.known in harm.unseen and bool(found) and not is_page and has_size


@contextlib.contextmanager
def memory_within(n_bytes: int, tally: Tally) -> Iterator[None]:
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    yield
    if (more := peak_memory() - before) > n_bytes:
        tally.harm("hang", f"{more} bytes of memory")


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads_of_ours() -> list[str]:
    end = time.monotonic() + 10
    while names := [t.name for t in threading.enumerate() if t.name.startswith("shardproof-")]:
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return names


@pytest.fixture
def wrongly_logged(caplog, monkeypatch) -> list[str]:
    lines: list[str] = []

    def note(record: logging.LogRecord) -> None:
        line, is_ours = record.getMessage(), record.name.startswith("shardproof")
        # httpcore writes, at DEBUG, what it could not parse, however long that is.
        if SECRET in line or (is_ours and not (line.isprintable() and len(line) <= MOST_TOLD)):
            lines.append(line)

    for name in ("shardproof.fetching", "httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)
    # Which would keep each record, and with an error all that its frames hold.
    monkeypatch.setattr(type(caplog.handler), "emit", lambda _, record: note(record))
    return lines


def _all_goes_well(root: Path) -> None:
    """Were everything refused, nothing would be wrong either; and libraries are imported here."""
    with RawServer(lambda request: sent(right_answer(request))) as server:
        our_fetch(CASES[0], f"http://127.0.0.1:{server.port}/0", root / "right", PATIENT)
    assert (root / "right").read_bytes() == DATA


@pytest.mark.attack("HTTP fault")
def test_whatever_a_server_sends_the_bytes_are_right_or_none(
    tally, tmp_path, wrongly_logged
) -> None:
    _all_goes_well(tmp_path)
    n_before = descriptors()
    with memory_within(MOST_MEMORY, tally):
        Attack(tally, [*tally.each(CASES, 120)], our_fetch, tmp_path).run()
    if names := threads_of_ours():
        tally.harm("leftover", f"threads {names}")
    if descriptors() > n_before + 2:
        tally.harm("leftover", f"{descriptors() - n_before} descriptors")
    for line in wrongly_logged:
        tally.harm("wrong class", f"a log of {len(line)} characters: {line[:300]!r}")


@pytest.mark.attack("HTTP fault")
@pytest.mark.parametrize("name", ["a bomb of gzip on the way", "an endless body on the way"])
def test_a_body_that_nobody_asked_for(name: str, tally: Tally, tmp_path: Path) -> None:
    """A client that is patient, since one that is not may end it for another reason."""
    _all_goes_well(tmp_path)
    cases = [case for case in CASES if case.name == name and not case.goes_on]
    with memory_within(MOST_MEMORY // 4, tally):
        Attack(tally, cases[:1], functools.partial(our_fetch, limits=PATIENT), tmp_path).run()


def _asked(source: Source) -> str:
    """What it says that is wrong, when it is asked in this thread and without a fetch."""
    cancellation = Cancellation()
    ending = threading.Timer(2.0, cancellation.cancel)
    ending.start()
    try:
        source.stat("x.bin", timeout=0.5, cancellation=cancellation)
        with source.read(ReadRequest("x.bin", timeout=0.5), cancellation) as response:
            for _ in itertools.islice(response.chunks, 10):
                pass
    except (SourceError, OSError) as error:
        return told_by(error)
    finally:
        ending.cancel()
        ending.join()
        source.close()
    return ""


def told_by(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _odd_values() -> Iterator[str]:
    for character in map(chr, [*range(256), 0x2028, 0x202E, 0xDC80, 0x1F600]):
        yield from (character + SECRET, SECRET + character, f"{SECRET}{character}x")


@pytest.mark.attack("HTTP fault")
@pytest.mark.parametrize("kind", ["header", "token", "token of the library"])
def test_a_secret_with_odd_characters(kind, tally, wrongly_logged, monkeypatch) -> None:
    with RawServer(lambda _: [NOT_FOUND]) as server:
        url = f"http://127.0.0.1:{server.port}"
        for value in tally.each([*_odd_values()], 60):
            monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda v=value: v)
            tally.count()
            try:
                if kind == "header":
                    told = _asked(HttpSource(url, headers={"Authorization": f"Bearer {value}"}))
                else:
                    token = value if kind == "token" else None
                    told = _asked(HubSource("org/name", endpoint=url, token=token))
            except ValueError as error:
                told = told_by(error)
            if SECRET in told or any(SECRET in line for line in wrongly_logged):
                tally.harm("lie", f"{kind} {value!r}: {told[:300]!r}")


@pytest.mark.control("lie", "torn")
def test_a_naive_fetch_is_caught(tmp_path: Path, tally: Tally) -> None:
    names = [name for name in HARMS if "of the header" not in name]
    cases = [Case(name, "nothing", False) for name in names[:: len(names) // 120]]
    Attack(tally, cases, naive_fetch, tmp_path).run()
