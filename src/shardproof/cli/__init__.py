"""The command ``shardproof``: `app` puts it together, and each command has a module.

Nothing is imported here: signals are taken first, by `entry`.
"""
