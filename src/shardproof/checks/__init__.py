"""Manifest -> findings, level by level."""

from shardproof.checks._check import OnProgress, check, flaw_of
from shardproof.checks._look import Links

__all__ = ["Links", "OnProgress", "check", "flaw_of"]
