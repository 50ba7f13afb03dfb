"""What every test of the project may use."""

from hypothesis import settings

pytest_plugins = ["pytester"]

# Examples write files, on whatever disk this runs: how long one takes says nothing about the code.
settings.register_profile("shardproof", deadline=None)
settings.load_profile("shardproof")
