"""Command templates: values reach the program as they are."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.errors import ConfigError
from operant.schedulers.planning.template import Template
from operant.space import build_space

SPACE = build_space(
    [
        {"type": "Categorical", "name": "batch-size", "data": [512]},
        {"type": "Nested", "data": [{"lr": 0.5, "decay": 1}]},
        {
            "type": "File",
            "name": "config",
            "file": "c.yaml",
            "place_holder": "file_art",
            "args": [{"type": "Int", "name": "a.b", "data": [1, 2]}],
        },
    ]
)
VALUES = {"batch-size": 512, "lr": 0.5, "decay": 1, "config": "/w/my c.yaml", "config(a.b)": 2}


def render(text: str, **more: object) -> list[str]:
    return Template(text, SPACE).render({**VALUES, **more})


def test_words_and_quotes() -> None:
    argv = render("python train.py --config '{config}' --batch-size {batch-size} --lr={lr} \"a b\"")
    assert argv == ["python", "train.py", "--config", "/w/my c.yaml", "--batch-size", "512", "--lr=0.5", "a b"]


def test_place_holder_is_one_more_text_for_the_file() -> None:
    assert render("python train.py file_art") == ["python", "train.py", "/w/my c.yaml"]


def test_a_flat_name_of_a_file_can_stand_in_the_template() -> None:
    assert render("p --b {config(a.b)}") == ["p", "--b", "2"]


def test_braces_that_are_no_placeholders() -> None:
    assert render("""p '{"a": 1}' {{literal}} '{}' """) == ["p", '{"a": 1}', "{literal}", "{}"]


def test_values_are_one_argument_whatever_they_hold() -> None:
    nasty = "a b; rm -rf / $(id) `id` 'q' \"d\" \\ \n* {lr}"
    assert render("p --x {lr}", lr=nasty) == ["p", "--x", nasty]
    assert render("p {lr}", lr=[1, "a"]) == ["p", '[1, "a"]']


@settings(max_examples=40, deadline=None)
@given(value=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12))
@pytest.mark.parametrize(
    "text",
    ["echo x | cat; printf %s {lr}", "printf %s '{lr}' && true", 'A=1; printf %s "{lr}"', "sh -c 'printf %s {lr}'"],
)
def test_a_shell_template_gets_values_quoted(text: str, value: str) -> None:
    argv = Template(text, SPACE).render({**VALUES, "lr": value})
    out = subprocess.run(argv, capture_output=True, check=True).stdout
    assert out.removeprefix(b"x\n") == value.encode()


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        ("python a.py", False),
        ("python a.py > log", True),
        ("cd sub && python a.py", True),
        ("LR=1 python a.py", True),
        ("python a.py '$HOME | x'", False),
        ("python $HOME/a.py", True),
        ("python a.py ${HOME}", True),
        ("p {config(a.b)}", False),
    ],
)
def test_which_templates_are_a_shells(text: str, shell: bool) -> None:
    assert Template(text, SPACE).is_shell is shell


def test_an_inactive_argument_falls_away_with_its_option() -> None:
    template = Template("p --lr {lr} --decay={decay} --x 1", SPACE)
    assert template.render({"lr": 1}) == ["p", "--lr", "1", "--x", "1"]
    assert template.render({"decay": 1}) == ["p", "--decay=1", "--x", "1"]


def test_unknown_placeholder_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"batch_size.*did you mean 'batch-size'"):
        Template("p {batch_size}", SPACE)


def test_names_of_any_script() -> None:
    space = build_space([{"type": "Int", "name": "学习率", "data": [1, 3]}])
    assert Template("train --lr {学习率}", space).render({"学习率": 2}) == ["train", "--lr", "2"]


@pytest.mark.parametrize("text", ["train --lr {lr", "train --lr {lr --more", "sh -c 'train {lr; true'"])
def test_a_placeholder_is_closed(text: str) -> None:
    space = build_space([{"type": "Int", "name": "lr", "data": [1, 3]}])
    with pytest.raises(ConfigError, match=r"'\{lr' is never closed: '\{lr\}'"):
        Template(text, space)
    assert Template("awk '{print $1}' {lr} {{lr}}", space).used == {"lr"}


def test_unused_arguments_are_noted() -> None:
    assert Template("p {config}", SPACE).notes == ["no placeholder of the template uses 'batch-size', 'lr', 'decay'"]
    assert Template("p {config} {batch-size} {lr} {decay}", SPACE).notes == []


def test_srun_is_taken_off() -> None:
    template = Template("srun -p pat_dev -n1 --gres gpu:1 --mpi=pmi2 --exclusive python a.py -p {lr}", SPACE)
    assert template.without_srun()
    assert template.render(VALUES) == ["python", "a.py", "-p", "0.5"]
    assert not Template("python a.py", SPACE).without_srun()


def test_a_rendered_command_runs() -> None:
    text = f"{sys.executable} -c 'import sys; print(sys.argv[1:])' {{lr}} '{{config}}'"
    out = subprocess.run(Template(text, SPACE).render(VALUES), capture_output=True, text=True, check=True).stdout
    assert out.strip() == "['0.5', '/w/my c.yaml']"
