"""The command ``shardproof checkpoint``."""

from shardproof._cli_checkpoint._commands import app

__all__ = ["app"]
