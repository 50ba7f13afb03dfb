"""The command ``shardproof checkpoint``."""

from shardproof.cli.checkpoint._commands import app

__all__ = ["app"]
