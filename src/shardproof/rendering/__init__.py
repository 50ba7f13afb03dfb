"""A report in the forms that people and other programs read: a page, a map, JUnit, annotations."""

from shardproof.rendering._forms import MARK, github, junit, page, prometheus, terminal_map
from shardproof.rendering._survey import Survey, survey

__all__ = ["MARK", "Survey", "github", "junit", "page", "prometheus", "survey", "terminal_map"]
