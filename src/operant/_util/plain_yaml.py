"""YAML as plain values, in bounded memory and time, with one sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from operant.errors import UsageError

# Values that aliases (`*name`) may repeat. Nine lines of them can stand for a billion.
_REPEATED = 100_000


def read_yaml(path: Path) -> Any:
    """What a YAML file says."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, what: str) -> Any:
    """What a YAML text says; ``what`` names it in messages."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_size(node, len(text) + _REPEATED, what)
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise UsageError(f"{what} is no YAML: {' '.join(str(error).split())[:300]}") from None
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply, or an alias (`*name`) in it holds itself") from None
    except UsageError:
        raise
    except ValueError as error:  # a number of too many digits, a date that does not exist
        raise UsageError(f"a value in {what} cannot be read: {error}") from None


def yaml_text(content: Any) -> str:
    """As YAML that any reader takes: a value that occurs twice is written twice, without anchors and aliases."""
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("_Dumper", (base,), {"ignore_aliases": lambda *_: True})
    dumper.add_multi_representer(str, lambda to, text: to.represent_str(str(text)))  # a Status is one
    return str(yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True))


def _check_size(node: yaml.Node | None, most: int, what: str) -> None:
    """Without aliases every value has a character of its own."""
    waiting = [node]
    while waiting:
        most -= 1
        if most < 0:
            raise UsageError(f"aliases (`*name`) in {what} repeat more than {_REPEATED:,} values")
        one = waiting.pop()
        if isinstance(one, yaml.MappingNode):
            waiting += [part for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            waiting += one.value
