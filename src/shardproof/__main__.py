"""``python -m shardproof``, and the command ``shardproof``."""

from shardproof._entry import take_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line; never returns."""
    take_signals()
    from shardproof import cli  # noqa: PLC0415 - from here on, an interrupt has an exit code

    cli.main()


if __name__ == "__main__":
    main()
