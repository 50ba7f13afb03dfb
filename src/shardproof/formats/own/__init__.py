"""The formats that shardproof reads and writes itself, and saev's."""
