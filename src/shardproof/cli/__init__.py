"""The command ``shardproof``: `app` puts it together, and knows the module of each command.

Nothing is imported here: signals are taken first, by `entry`.
"""
