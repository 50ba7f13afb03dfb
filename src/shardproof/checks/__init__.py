"""Manifest -> findings, level by level."""

from shardproof.checks._check import OnProgress, check
from shardproof.checks._look import Links

__all__ = ["Links", "OnProgress", "check"]
