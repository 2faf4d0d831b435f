"""Change single values of a configuration file and nothing else in it: comments and order stay."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from ga3c.config import ConfigError, load
from ga3c.runs import write_whole


def set_values(path: Path, values: Mapping[str, str]) -> None:
    """Set ``section.key`` to a text in a YAML file that has all the keys, or lacks some.

    Raises ConfigError, with the file as it was, when the file or the result is no valid configuration.
    """
    load(path, values)
    text = path.read_bytes().decode()
    for key, value in values.items():
        text = _with_value(text, key, value)
    write_whole(path, text.encode())


def _with_value(text: str, key: str, value: str) -> str:
    section, _, name = key.partition(".")
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode)  # it has been loaded
    if root.flow_style:
        raise ConfigError(["a configuration in braces is not written to; expected a key on each line"])
    for section_node, mapping in root.value:
        if section_node.value != section:
            continue
        for key_node, value_node in mapping.value:
            if key_node.value == name:
                return text[: value_node.start_mark.index] + value + text[value_node.end_mark.index :]
        place = mapping.start_mark
        if mapping.flow_style:
            return f"{text[: place.index + 1]}{name}: {value}, {text[place.index + 1 :]}"
        indent = " " * place.column
        return f"{text[: place.index]}{name}: {value}\n{indent}{text[place.index :]}"
    return f"{text.rstrip()}\n\n{section}:\n  {name}: {value}\n"
