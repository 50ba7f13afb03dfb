"""Manifest -> findings, level by level."""

from shardproof.checks._check import Links, OnProgress, check
from shardproof.checks._look import Noting

__all__ = ["Links", "Noting", "OnProgress", "check"]
