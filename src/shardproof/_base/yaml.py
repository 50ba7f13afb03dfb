"""YAML from outside, with limits: bytes, depth, items; no tags, no key twice, mostly no anchors.

An alias makes a few lines a gigabyte, and a tag another type than what is written: dataset cards
need neither. Only the field that is asked for becomes values.
"""

from typing import Any, NoReturn

from shardproof._base.messages import quoted

MAX_YAML_BYTES = 2 * 2**20
"""Longest text that is read: the longest cards of the Hub have half of it."""

_MAX_DEPTH = 64
_MAX_ITEMS = 300_000
_MAX_PLAIN = 100  # a number of more characters takes long to read, and is none
_STRING = "tag:yaml.org,2002:str"


class NotYamlError(Exception):
    """A text can't be read, or is more than what is read."""


class YamlReader:
    """Reads a field at the top of a text; of the mappings in it ``only`` one field, if given."""

    # With ``as_written``, every single value is a text: of what YAML 1.2 takes for one, PyYAML
    # takes some for numbers, dates and truths. An alias counts as all that it stands for.
    def __init__(
        self,
        where: str,
        *,
        only: str | None = None,
        as_written: bool = False,
        aliases: bool = False,
    ) -> None:
        self._where, self._only = where, only
        self._as_written, self._aliases = as_written, aliases
        self._depth = self._n_items = 0

    def field(self, text: str, field: str, default: Any = None) -> Any:
        """Return what a field holds; the text is a mapping, or empty."""
        if not text:
            return default
        try:
            import yaml  # type: ignore[import-untyped] # noqa: PLC0415 - huggingface_hub has it
        except ImportError as error:
            raise ImportError("YAML is read by PyYAML: pip install 'shardproof[hf]'") from error
        self._yaml = yaml
        if len(text.encode()) > MAX_YAML_BYTES:
            self._refuse(f"expected at most {MAX_YAML_BYTES} bytes of YAML")
        try:
            # The loader that datasets has: the faster one in C takes tabs and marks differently.
            loader = yaml.SafeLoader(text)
            get_event = loader.get_event

            def get_event_within_limits() -> Any:  # before anything is built of an event
                event = get_event()
                self._depth += isinstance(event, yaml.CollectionStartEvent)
                self._depth -= isinstance(event, yaml.CollectionEndEvent)
                self._count(event, self._depth)
                if getattr(event, "anchor", None) is not None and not self._aliases:
                    self._refuse("it has an anchor or an alias (& or *)", event.start_mark)
                if getattr(event, "tag", None) is not None:
                    self._refuse(f"it has a tag, {quoted(event.tag)}", event.start_mark)
                return event

            loader.get_event = get_event_within_limits
            root = loader.get_single_node()
        except (ValueError, OverflowError, yaml.YAMLError) as error:
            mark = getattr(error, "problem_mark", None)
            self._refuse(f"not YAML: {quoted(getattr(error, 'problem', None) or str(error))}", mark)
        if root is None:
            return default
        if not isinstance(root, yaml.MappingNode):
            self._refuse("expected fields, 'name: value'", root.start_mark)
        node, self._n_items = self._nodes(root).get(field), 0
        return default if node is None else self._value(node)

    def _count(self, item: Any, depth: int) -> None:
        self._n_items += 1
        if depth > _MAX_DEPTH or self._n_items > _MAX_ITEMS:
            problem = f"expected at most {_MAX_DEPTH} levels and {_MAX_ITEMS} items"
            self._refuse(problem, item.start_mark)

    def _nodes(self, node: Any) -> dict[str, Any]:
        nodes: dict[str, Any] = {}
        for key, value in node.value:
            is_single = self._as_written and isinstance(key, self._yaml.ScalarNode)
            if key.tag != _STRING and not is_single:
                self._refuse("expected a text for the name of a field", key.start_mark)
            if key.value in nodes:
                self._refuse(f"the field {quoted(key.value)} stands twice", key.start_mark)
            nodes[key.value] = value
        return nodes

    def _value(self, node: Any, depth: int = 0) -> Any:
        self._count(node, depth)
        if isinstance(node, self._yaml.MappingNode):
            return {
                key: self._value(value, depth + 1)
                for key, value in self._nodes(node).items()
                if self._only in {None, key}
            }
        if isinstance(node, self._yaml.SequenceNode):
            return [self._value(value, depth + 1) for value in node.value]
        if self._as_written or node.tag == _STRING:
            return node.value
        if len(node.value) > _MAX_PLAIN:
            self._refuse(f"no value that can be read: {quoted(node.value)}", node.start_mark)
        try:  # of a loader without a text only the constructors are wanted
            return self._yaml.SafeLoader("").construct_object(node)
        except (ValueError, self._yaml.YAMLError):
            self._refuse(f"no value that can be read: {quoted(node.value)}", node.start_mark)

    def _refuse(self, problem: str, mark: Any = None) -> NoReturn:
        line = "" if mark is None else f", line {mark.line + 1} of its YAML"
        raise NotYamlError(f"{self._where}{line}: {problem}")
