"""What hypothesis calls when it is imported (its entry point ``hypothesis``)."""

from typing import TYPE_CHECKING

from shardproof.testing.samples._layout import Layout

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def register() -> None:
    """Let ``st.from_type(Layout)``, and annotations of ``@given(...)``, find the strategy."""
    from hypothesis import strategies as st  # noqa: PLC0415 - it is being imported: not above

    st.register_type_strategy(Layout, _layouts)


def _layouts(_: type[Layout]) -> "SearchStrategy[Layout]":
    from shardproof.testing.contracts import strategies  # noqa: PLC0415 - not before it is needed

    return strategies.layouts()
