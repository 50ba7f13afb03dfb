"""A hub whose answers were changed, one at a time: an error of ours, or the right bytes."""

import contextlib
import http.client
import json
import random
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardproof import FetchError, ShardPrefetcher, SourceError
from shardproof.datasets import hf_load_dataset_sharded as load_rows
from shardproof.fetching import HubSource, Limits, adopt, fetch_file
from shardproof.testing.faults import serve_hub
from tests.attacks.http_harms import NAMES, ODD, Answer
from tests.attacks.mutations import mutated
from tests.attacks.raw_server import Asking, Request, Step
from tests.attacks.tally import Tally

LIMITS = Limits(attempts=1, timeout=5.0, stall_timeout=1.0, max_backoff=0.01, deadline=10.0)
NAME = "data/train-0.parquet"
REPO = "org/name"


class Case(NamedTuple):
    user: str
    nth: int
    seed: int


HEADERS = [*NAMES, "Link", "Location", "X-Error-Code", "X-Error-Message", "Retry-After"]
STATUSES = ["200 OK", "204 No", "206 Part", "301 M", "302 F", "304 N", "308 P", "401 W", "403 F"]
STATUSES += ["404 N", "416 R", "429 T", "500 \x1b[31m", "503 " + "x" * 60_000, "999 X", "2x0 OK"]


def other_body(answer: Answer, luck: random.Random) -> None:
    """It is spoiled, and half of the time cut off from what the header says of its length."""
    body = mutated(answer.body, luck.randrange(10**6))
    if luck.random() < 0.8:
        answer.sized(body)
    else:
        answer.body = body


def other_header(answer: Answer, luck: random.Random) -> None:
    """A header is another one, is gone, or there is one more; or the status is another one."""
    headers = answer.headers
    at = luck.randrange(len(headers))
    how = luck.randrange(5)
    if how == 0:
        answer.status = luck.choice(STATUSES)
    elif how == 1:
        del headers[at]
    elif how == 2:
        headers[at] = (headers[at][0], luck.choice(ODD))
    else:
        headers.append((luck.choice(HEADERS), luck.choice(ODD)))


CHANGES = [other_body, other_body, other_body, other_header]


def lists(source: HubSource, path: Path) -> bool:
    return bool(source.files()) or True


def states(source: HubSource, path: Path) -> bool:
    return bool(source.stat(NAME, timeout=5.0))


def fetches(source: HubSource, path: Path) -> bool:
    return fetch_file(source, NAME, path / "x", limits=LIMITS).path.read_bytes() == PARQUET


def fetches_what_is_listed(source: HubSource, path: Path) -> bool:
    found = [file for file in source.files() if file.name == NAME]
    return all(
        fetch_file(source, NAME, path / "x", file=file, limits=LIMITS).path.read_bytes() == PARQUET
        for file in found
    )


def prefetches(source: HubSource, path: Path) -> bool:
    with ShardPrefetcher(source, [NAME], path, limits=LIMITS) as prefetcher:
        return all(shard.read_bytes() == PARQUET for shard in prefetcher)


def adopts(source: HubSource, path: Path) -> bool:
    (path / "data").mkdir(parents=True)
    (path / NAME).write_bytes(PARQUET)
    adopt(path, source, limits=LIMITS, workers=1)
    return True


def reads_rows(source: HubSource, path: Path) -> bool:
    rows = load_rows(REPO, cache_dir=path, limits=LIMITS, endpoint=source._api.endpoint, prefetch=0)
    return all(row["n"] in range(3) for row in rows)


def lists_naively(source: HubSource, path: Path) -> bool:
    """The control: who believes what a hub says."""
    root = f"{source._api.endpoint}/api/datasets/{REPO}"
    with urllib.request.urlopen(root, timeout=5) as response:
        sha = json.load(response)["sha"]
    with urllib.request.urlopen(f"{root}/tree/{sha}?recursive=true", timeout=5) as response:
        sizes = {entry["path"].strip(): entry["size"] + 0 for entry in json.load(response)}
    return sizes.get(NAME) == len(PARQUET)


USERS: dict[str, tuple[Callable[[HubSource, Path], bool], int]] = {
    "lists": (lists, 2),
    "states": (states, 2),
    "fetches": (fetches, 4),
    "fetches what is listed": (fetches_what_is_listed, 4),
    "prefetches": (prefetches, 4),
    "adopts": (adopts, 3),
    "reads rows": (reads_rows, 7),
    "control": (lists_naively, 2),
}
"""What users do, and how many answers they are given for it."""

CASES = [
    Case(user, nth, seed)
    for seed in range(150)
    for user, (_, n_answers) in USERS.items()
    for nth in range(n_answers)
    if user != "control"
]


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": range(3)}), sink)
    return bytes(sink.getvalue())


PARQUET = _parquet()
CARD = b"---\nconfigs:\n- config_name: default\n  data_files: data/*.parquet\n---\n# Rows\n"


class Attack(Asking):
    def __init__(self, tally: Tally, cases: Sequence[Case], root: Path) -> None:
        super().__init__(tally, cases, root)
        self._counts = Counter[int]()

    def run(self) -> list[Request]:
        with serve_hub() as self._hub:
            self._hub.put(NAME, PARQUET, repo=REPO)
            self._hub.put("README.md", CARD, repo=REPO)
            return super().run()

    def answer(self, number: int, request: Request) -> list[Step]:
        with self._lock:
            nth = self._counts[number]
            self._counts[number] += 1
        answer, case = self._asked(request), self.cases[number]
        is_last = nth == case.nth
        if is_last:
            luck = random.Random(f"{case}")
            luck.choice(CHANGES)(answer, luck)
        body = b"" if request.method == "HEAD" else answer.body
        return [answer.head() + body, *([] if is_last else ["keep"])]

    def _asked(self, request: Request) -> Answer:
        where = f"{self.url}/{request.case}"
        target = request.target.removeprefix(f"/{request.case}") or "/"
        headers = {**request.headers, "host": self._hub.url.removeprefix("http://")}
        with contextlib.closing(http.client.HTTPConnection(headers["host"], timeout=30)) as hub:
            hub.request(request.method, target, request.body or None, headers)
            response = hub.getresponse()
            body = response.read()
        told = [
            (name, value.replace(self._hub.cdn_url, where).replace(self._hub.url, where))
            for name, value in response.getheaders()
            if name.lower() not in {"connection", "date", "server"}
        ]
        return Answer(f"{response.status} {response.reason}", told, body)

    def ask(self, number: int, case: Case, path: Path) -> None:
        source = HubSource(REPO, endpoint=f"{self.url}/{number}", token="")
        try:
            if not USERS[case.user][0](source, path):
                self.harm("lie", case, "wrong bytes")
        except (FetchError, SourceError) as error:
            self.judge_text(case, str(error))
        except Exception as error:  # which is what is looked for
            self.harm("wrong class", case, f"{type(error).__name__}: {error}"[:500])
        finally:
            source.close()
        if (path / "x").exists() and (path / "x").read_bytes() != PARQUET:
            self.harm("torn", case, "wrong bytes under the name")


@pytest.mark.attack("a hub's answer changed")
def test_a_changed_answer_is_refused_or_harmless(tally: Tally, tmp_path: Path) -> None:
    Attack(tally, [*tally.each(CASES, 100)], tmp_path).run()


@pytest.mark.control("wrong class")
def test_who_believes_what_a_hub_says_is_caught(tally: Tally, tmp_path: Path) -> None:
    cases = [Case("control", nth, seed) for seed in range(30) for nth in (0, 1)]
    Attack(tally, cases, tmp_path).run()
