"""Manifest -> findings, level by level."""

from shardproof.checks._check import Links, OnProgress, check

__all__ = ["Links", "OnProgress", "check"]
