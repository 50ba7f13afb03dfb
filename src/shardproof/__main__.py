"""``python -m shardproof``: the same as the command ``shardproof``."""

from shardproof.cli import main

main()
