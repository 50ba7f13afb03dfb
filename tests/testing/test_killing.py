"""The killer sees what is there to be seen: else that it sees nothing would prove nothing."""

import os
import shutil

import pytest

from tests.helpers.killing import (
    Begin,
    at_every_call,
    at_every_state,
    skip_where_not_permitted,
)


@pytest.fixture(autouse=True, scope="module")
def _ptrace() -> None:
    skip_where_not_permitted()


@pytest.mark.slow
def test_states_are_those_after_kills(tmp_path) -> None:
    """One child that is looked at leaves what many do that are killed."""
    path = tmp_path / "d"
    killed_states, states = set(), set()

    def act(begin: Begin) -> None:
        begin()
        (path / "a").mkdir()
        with open(path / "x", "wb") as file:
            file.write(b"1" * 9)
            file.flush()
            file.write(b"2" * 9)
        os.rename(path / "x", path / "a" / "y")

    def prepare() -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()

    def state() -> frozenset:
        files = [file for file in path.rglob("*") if file.is_file()]
        return frozenset(str(found.relative_to(path)) for found in path.rglob("*")), *(
            file.read_bytes() for file in files
        )

    at_every_call(act, prepare=prepare, check=lambda _: killed_states.add(state()))
    prepare()
    assert at_every_state(act, path, check=lambda _: states.add(state())) == 6
    assert states == killed_states
