"""Reading YAML with the numbers of YAML 1.2 (`1e-5`, `inf`) and the line of every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from operant.errors import ConfigError, KeyPath

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?
        |[-+]?\.?(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN)|nan|NaN)$""",
    re.VERBOSE,
)
_INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


class Loader(yaml.SafeLoader):
    """YAML 1.2's idea of numbers and booleans: `1e-5` and `inf` are numbers; `on`,
    `yes` and 1:30 are texts.
    """

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        # Python reads inf and nan in any case, but without YAML's point in front.
        return float(re.sub(r"\.(?=[iInN])", "", str(self.construct_scalar(node))))

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("null", "merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
# Whole numbers first: the pattern for floats matches them as well.
Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789iInN"))
Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_yaml_float)
Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)


# Values that aliases (`*name`) may repeat. Nine lines of them can stand for a billion.
_REPEATED = 100_000


def load_yaml(text: str, file: str = "") -> tuple[Any, dict[KeyPath, int]]:
    """What the text says, and the line of each key path: `("task", "search_args", 0, "name")` -> 7."""
    loader: Loader | None = None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {(): 1}
        lines = _Lines(file, most=len(text) + _REPEATED)
        lines.note(node, ())
        return loader.construct_document(node), lines.found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise ConfigError(error.problem or str(error), file=file or None, line=line) from None
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split()), file=file or None) from None
    except RecursionError:
        raise ConfigError("it is nested too deeply, or an alias (`*name`) holds itself", file=file or None) from None
    except ConfigError:
        raise
    except ValueError as error:  # a number of too many digits, a date that does not exist
        raise ConfigError(f"a value cannot be read: {error}", file=file or None) from None
    finally:
        if loader is not None:
            loader.dispose()


def load_yaml_file(path: str | Path) -> tuple[Any, dict[KeyPath, int]]:
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(file)) from None
    return load_yaml(text, str(file))


class _Lines:
    """Finds the line of every key."""

    def __init__(self, file: str, most: int) -> None:
        self.found: dict[KeyPath, int] = {(): 1}
        self._file = file or None
        self._left = most

    def note(self, node: yaml.Node, path: KeyPath) -> None:
        self._left -= 1
        if self._left < 0:  # without aliases every value has a character of its own
            raise ConfigError(f"its aliases (`*name`) repeat more than {_REPEATED:,} values", file=self._file)
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for key, value in node.value:
                name, line = str(key.value), key.start_mark.line + 1
                if name in seen and name != "<<":
                    raise ConfigError(
                        f"the key is given twice, first in line {seen[name]}",
                        (*path, name),
                        file=self._file,
                        line=line,
                    )
                seen[name] = line
                self.found[(*path, name)] = line
                self.note(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for place, item in enumerate(node.value):
                self.found[(*path, place)] = item.start_mark.line + 1
                self.note(item, (*path, place))
