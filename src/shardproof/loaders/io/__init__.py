"""Rows are read from shards into memory that is used again."""
