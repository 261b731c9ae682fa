"""From a command template and a configuration to the arguments of a program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from operant.errors import ConfigError, unknown
from operant.space import Dict

# A name as it can stand in braces: not `{"a": 1}` of some JSON, not `${HOME}` of the shell.
_NAME = r"[^\W\d][\w.\-/]*(?:\([^(){}]*\))?"
# Doubled braces around a name mean the braces themselves.
_HOLDER = re.compile(rf"\{{\{{(?P<literal>{_NAME})\}}\}}|(?<!\$)\{{(?P<name>{_NAME})\}}")
_OPERATORS = frozenset("|&;<>()`\n")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_OPEN = re.compile(rf"(?<![\$\{{])\{{(?P<name>{_NAME})(?![\w.\-/(}}])")
RESERVED = ("seed", "budget", "job_id")


class Template:
    """A command with ``{placeholders}``.

    Values become arguments of the program as they are, whatever characters they hold. Only where the template
    itself is a shell's (it has pipes, redirections, ``&&``, ``$VARIABLES``, or calls ``sh -c``) do they pass a
    shell, quoted for the place where they stand.
    """

    def __init__(self, text: str, space: Dict, extra_names: tuple[str, ...] = RESERVED) -> None:
        self.text = " ".join(text.split("\\\n")).strip()
        self.files = space.files
        names = {*space.names, *self.files}
        self.notes: list[str] = []
        protected = self.text
        for name, part in self.files.items():
            if part.place_holder and part.place_holder in protected:
                protected = protected.replace(part.place_holder, "{" + name + "}")
        self._protected = protected
        self.used = set(_names_in(protected))
        for name in sorted(self.used - names - set(extra_names)):
            raise ConfigError(unknown("placeholder, there is no argument", name, sorted(names)), ("template",))
        for opened in _OPEN.finditer(protected):  # of other names it may be an awk program's
            if opened["name"] in names:
                raise ConfigError(f"the placeholder {opened[0]!r} is never closed: {opened[0] + '}'!r}", ("template",))
        covered = self.used | {
            one for file in self.files if file in self.used for one in names if one.startswith(f"{file}(")
        }
        unused = [name for name in [*space.names, *self.files] if name not in covered]
        unused = [
            name for name in unused if name not in self.files or not any(n.startswith(f"{name}(") for n in self.used)
        ]
        if unused and self.text:
            self.notes.append(f"no placeholder of the template uses {', '.join(map(repr, unused))}")
        try:
            self._words = [] if not self.text else shlex.split(protected)
        except ValueError as error:
            raise ConfigError(f"the template cannot be split into words: {error}", ("template",)) from None
        self.is_shell = _needs_shell(protected)
        if not self.is_shell and self._words and re.match(r"[A-Za-z_]\w*=", self._words[0]):
            self.is_shell = True

    @property
    def program(self) -> str | None:
        """The program that is started, if that can be told before a shell has read the template."""
        return None if self.is_shell or not self._words else self._words[0]

    def without_srun(self) -> bool:
        """Take ``srun`` and its options off the front; for machines that have no Slurm."""
        words = self._words
        if self.is_shell or not words or words[0].rpartition("/")[2] != "srun":
            return False
        from operant.sites.slurm import SRUN_FLAGS  # with all that clusters need, which other searches do not load

        at = 1
        while at < len(words) and words[at].startswith("-"):
            word = words[at]
            alone = word in SRUN_FLAGS or "=" in word or (not word.startswith("--") and len(word) > 2)
            at += 1 if alone else 2
        self._words = words[at:]
        return True

    def render(self, values: Mapping[str, Any]) -> list[str]:
        """The program and its arguments. A placeholder whose argument is not active falls away with its word,
        and with the ``--option`` in front of it."""
        if self.is_shell:
            return ["/bin/sh", "-c", _fill_shell(self._protected, values)]
        argv: list[str] = []
        for place, word in enumerate(self._words):
            names = _names_in(word)
            if any(name not in values for name in names):
                alone = _HOLDER.fullmatch(word) is not None
                if alone and argv and argv[-1].startswith("-") and "=" not in argv[-1]:
                    argv.pop()
                continue
            before = self._words[max(place - 2, 0) : place]
            if len(before) == 2 and before[1] == "-c" and before[0].rpartition("/")[2] in _SHELLS:
                argv.append(_fill_shell(word, values))
            else:
                argv.append(_fill(word, lambda name, _: value_text(values[name])))
        return argv


def _names_in(text: str) -> list[str]:
    return [found["name"] for found in _HOLDER.finditer(text) if found["name"] is not None]


def _fill(text: str, value_of: Callable[[str, int], str]) -> str:
    """Replace each placeholder by ``value_of(name, where it stands)``."""

    def fill(found: re.Match[str]) -> str:
        if found["literal"] is not None:
            return "{" + found["literal"] + "}"
        return value_of(found["name"], found.start())

    return _HOLDER.sub(fill, text)


def value_text(value: Any) -> str:
    """A value as an argument: texts as they are, lists and mappings as JSON, the rest as Python prints it."""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value)
    return str(value)


def _needs_shell(text: str) -> bool:
    """Whether the words hold anything that only a shell understands, outside of quotes."""
    for place, char, quote, escaped in _scan(text):
        if escaped:
            continue
        if quote == "" and (char in _OPERATORS or char in "$*?~"):
            # A name such as {config(epochs)} has brackets of its own; they were checked to be a placeholder.
            if char in "()" and _inside_holder(text, place):
                continue
            return True
        if quote == '"' and char in "$`":
            return True
    return False


def _inside_holder(text: str, place: int) -> bool:
    return any(found.start() <= place < found.end() for found in _HOLDER.finditer(text))


def _scan(text: str) -> list[tuple[int, str, str, bool]]:
    """Each character with the quote it stands in (``"``, ``'`` or none) and whether it is escaped."""
    found, quote, escaped = [], "", False
    for place, char in enumerate(text):
        found.append((place, char, quote, escaped))
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote == "" and char in "'\"":
            quote = char
        elif char == quote:
            quote = ""
    return found


def _fill_shell(text: str, values: Mapping[str, Any]) -> str:
    quotes = [quote for _, _, quote, _ in _scan(text)]

    def quoted(name: str, place: int) -> str:
        if name not in values:
            return ""
        value = value_text(values[name])
        if quotes[place] == "'":
            return value.replace("'", "'\\''")
        if quotes[place] == '"':
            return re.sub(r'([\\"$`])', r"\\\1", value)
        return shlex.quote(value)

    return _fill(text, quoted)
