"""What tests of epochs and of states share."""

from collections.abc import Callable

import pytest

from tests.helpers.loading import taken


@pytest.fixture
def expected(make) -> Callable[[int], list[list[tuple]]]:
    """The batches of an epoch, from a loader of its own that was told which."""

    def order(epoch: int) -> list[list[tuple]]:
        loader = make()
        loader.set_epoch(epoch)
        return taken(loader, 6)

    return order
