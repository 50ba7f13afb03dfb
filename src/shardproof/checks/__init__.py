"""Manifest -> findings, level by level."""

from shardproof.checks._check import OnProgress, check, flaw_of
from shardproof.checks._look import FileRead, Links, Noting

__all__ = ["FileRead", "Links", "Noting", "OnProgress", "check", "flaw_of"]
