from __future__ import annotations

import ast
import copy
import json
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.errors import ConfigError
from operant.space import Dict, File, Int, Nested, check_paths, edit_text

YAML = """\
# training
epochs: 3            # rounds
scheduler:
    step_size: 1     # of the rate
    gamma: .5
empty:
layers:
- 64   # first
- 32
flow: {a: 'x, y', b: [1, 2]}
base: &base
  lr: 0.1
copy: *base
merged:
  <<: *base
  momentum: 0.9
text: |
  several
  lines
"a.b": 7
"""


def test_yaml_keeps_comments_and_everything_else():
    edited = edit_text(YAML, {"epochs": 5, "scheduler.step_size": 2, "scheduler.gamma": 1e-5}, "c.yaml")
    assert edited == YAML.replace("epochs: 3", "epochs: 5").replace("step_size: 1", "step_size: 2").replace(
        "gamma: .5", "gamma: 1.0e-05"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("empty", 1),
        ("layers", [128, 64]),
        ("layers.0", 16),
        ("layers[1]", 8),
        ("flow.a", "u, v"),
        ("flow.b.1", {"k": [1, "no"]}),
        ("text", "one: line"),
        ("a.b", False),
        ("epochs", "yes"),
        ("scheduler", {"kind": "cosine"}),
        ("base.lr", None),
        ("merged.momentum", float("inf")),
    ],
)
def test_yaml_sets_one_value_and_no_other(path, value):
    before, after = yaml.safe_load(YAML), yaml.safe_load(edit_text(YAML, {path: value}, "c.yml"))
    expected = put(before, path, value)
    if path == "base.lr":
        expected["copy"] = {"lr": None}
        expected["merged"]["lr"] = None
    assert after == expected


def test_an_alias_is_replaced_where_it_is_used():
    after = yaml.safe_load(edit_text(YAML, {"copy": {"lr": 5}}, "c.yaml"))
    assert (after["copy"], after["base"]) == ({"lr": 5}, {"lr": 0.1})
    with pytest.raises(ConfigError, match="comes from another part of the file"):
        edit_text(YAML, {"merged.lr": 5}, "c.yaml")


PYTHON = '''\
"""Settings."""
import os  # never executed

epochs: int = 3  # rounds
optimizer = dict(type="SGD", lr=0.1, betas=(0.9, 0.99))
cfg = EasyDict(dict(model=dict(width=[64, 32], näme="ü"), exp=7))
cfg.model["depth"] = 2
raise_if_run = os.abort


class Train:
    steps = 10
    inner = {"a": {"b": 1}}  # ß
'''


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("epochs", 5, "int = 3", "int = 5"),
        ("optimizer.lr", 1e-5, "lr=0.1", "lr=1e-05"),
        ("optimizer.betas.1", 0.5, "0.99", "0.5"),
        ("optimizer.betas", [1, 2], "(0.9, 0.99)", "[1, 2]"),
        ("cfg.model.width", [1], "[64, 32]", "[1]"),
        ("cfg.model.näme", "x'y", '"ü"', '"x\'y"'),
        ("cfg.exp", float("inf"), "exp=7", "exp=float('inf')"),
        ("cfg.model.depth", None, "] = 2", "] = None"),
        ("Train.steps", True, "steps = 10", "steps = True"),
        ("Train.inner.a.b", {"c": [1]}, ": 1}", ": {'c': [1]}}"),
    ],
)
def test_python_files_change_only_the_value(path, value, old, new):
    edited = edit_text(PYTHON, {path: value}, "config.py")
    assert edited == PYTHON.replace(old, new)
    ast.parse(edited)


TOML = """\
# training
epochs = 3  # rounds
rates = [
    0.1,  # first
    0.2,
]
[scheduler]
step_size = 1
gamma.start = 0.5
inline = { a = 1, "b.c" = 'x # y' }
text = \"\"\"
quoted "text" ]
\"\"\"
[[stages]]
name = "one"
[[stages]]
name = "two"
[stages.more]
k = 2020-01-01
"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("epochs", 5),
        ("rates", [1.5]),
        ("rates.1", 1e-7),
        ("scheduler.step_size", 'a"b\n'),
        ("scheduler.gamma.start", False),
        ("scheduler.inline.b.c", {"d": [1, "e"]}),
        ("scheduler.text", float("inf")),
        ("stages.0.name", "ü"),
        ("stages.1.name", 1),
        ("stages.1.more.k", 3),
    ],
)
def test_toml_sets_one_value_and_keeps_comments(path, value):
    edited = edit_text(TOML, {path: value}, "pyproject.toml")
    assert tomllib.loads(edited) == put(tomllib.loads(TOML), path, value)
    assert edited.count("#") >= TOML.count("#") - (path == "rates") - (path == "scheduler.inline.b.c")


def test_several_values_at_once():
    edited = edit_text(TOML, {"stages.1.name": "x", "epochs": 1, "rates.0": 7}, "c.toml")
    expected = tomllib.loads(TOML)
    for path, value in {"stages.1.name": "x", "epochs": 1, "rates.0": 7}.items():
        expected = put(expected, path, value)
    assert tomllib.loads(edited) == expected


@pytest.mark.parametrize(
    ("path", "file", "text", "message"),
    [
        ("schduler.gamma", "c.yaml", YAML, "c.yaml: 'schduler.gamma'; did you mean 'scheduler.gamma'"),
        ("Train.step", "c.py", PYTHON, "did you mean 'Train.steps'"),
        ("epoch", "c.toml", TOML, "did you mean 'epochs'"),
        ("Train", "c.py", PYTHON, "cannot be set: it is a class"),
        ("a", "c.ini", "", "files that end in .yaml"),
        ("a", "c.json", "{", "c.json cannot be read as json"),
        ("a", "c.py", "def", "c.py cannot be read as py"),
        ("a", "c.toml", "x", "c.toml cannot be read as toml"),
        ("a", "c.yaml", "a: [", "c.yaml cannot be read as yaml"),
    ],
)
def test_what_cannot_be_set_is_said(path, file, text, message):
    with pytest.raises(ConfigError, match=message):
        edit_text(text, {path: 1}, file)
    with pytest.raises(ConfigError, match=message):
        if path == "Train":
            raise ConfigError(message)
        check_paths(text, [path], file)


def test_a_file_of_a_space_checks_and_renders_itself():
    rows = Nested([{"scheduler.step_size": 2, "scheduler.gamma": 0.7}], when={"outside": 1})
    file = File("c.yaml", {"epochs": Int(5, 5), "rows": rows})
    space = Dict(outside=Int(1, 1), config=file)
    assert file.paths == ["epochs", "scheduler.step_size", "scheduler.gamma"]
    file.check(YAML)
    rendered = file.render(YAML, file.values("config", space.data[0]))
    assert yaml.safe_load(rendered)["scheduler"] == {"step_size": 2, "gamma": 0.7}
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        File("c.yaml", {"epoch": Int(1, 2)}).check(YAML)


def test_two_paths_to_one_place_are_refused():
    with pytest.raises(ConfigError, match="same part of the file"):
        edit_text(YAML, {"scheduler": 1, "scheduler.gamma": 2}, "c.yaml")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(-1e9, 1e9), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text('abcé "\\', min_size=1, max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.text("abcdxyz", min_size=1, max_size=4), json_values, min_size=1, max_size=4)


def paths_of(value, prefix=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*prefix, str(key))
        yield from paths_of(inner, (*prefix, str(key)))


def put(tree, path, value):
    """A copy of plain data with the value at a dotted path replaced; keys may contain dots."""
    tree = copy.deepcopy(tree)
    parts = path.replace("[", ".").replace("]", "").split(".") if isinstance(path, str) else list(path)
    node = tree
    while parts:
        for cut in range(1, len(parts) + 1):
            key = ".".join(parts[:cut])
            key = int(key) if isinstance(node, list) else key
            if isinstance(node, list) or key in node:
                break
        parts = parts[cut:]
        if not parts:
            node[key] = value
        else:
            node = node[key]
    return tree


@given(documents, json_values, st.data(), st.sampled_from([None, 1, 4]))
@settings(max_examples=150, deadline=None)
def test_json_editing_changes_only_the_value(document, value, data, indent):
    path = data.draw(st.sampled_from(sorted(paths_of(document))))
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    edited = edit_text(text, {".".join(path): value}, "c.json")
    assert json.loads(edited) == put(document, path, value)


@given(documents, json_values, st.data(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_yaml_editing_changes_only_the_value(document, value, data, flow):
    path = data.draw(st.sampled_from(sorted(paths_of(document))))
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True)
    edited = edit_text(text, {".".join(path): value}, "c.yaml")
    assert yaml.safe_load(edited) == put(yaml.safe_load(text), path, value)


@given(documents, json_values, st.data())
@settings(max_examples=150, deadline=None)
def test_python_editing_changes_only_the_value(document, value, data):
    path = data.draw(st.sampled_from(sorted(paths_of(document))))
    text = "# é\n" + "".join(
        f"{name} = {inner!r}  # {name}\n" for name, inner in document.items() if name.isidentifier()
    )
    edited = edit_text(text, {".".join(path): value}, "c.py")
    read = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(edited).body}
    assert read == put(document, path, value)
    assert edited.count("\n") == text.count("\n")
