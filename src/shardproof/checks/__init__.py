"""Manifest -> findings, level by level."""

from shardproof.checks._check import Links, OnProgress, check
from shardproof.checks._look import FileRead, Noting

__all__ = ["FileRead", "Links", "Noting", "OnProgress", "check"]
