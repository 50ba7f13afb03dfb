"""Manifest -> findings, level by level."""

from shardproof.checks._check import Links, OnProgress, check, flaw_of

__all__ = ["Links", "OnProgress", "check", "flaw_of"]
