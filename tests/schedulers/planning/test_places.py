"""The site of a search: where its settings stand, and what is wrong with them, before anything is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from operant.errors import ConfigError
from operant.schedulers.planning.places import moved
from operant.schedulers.planning.plan import make_plan


def config(site: Any = None, **scheduler: Any) -> dict[str, Any]:
    found = {
        "task": {"template": "no-such-program {x}", "search_args": [{"name": "x", "type": "Int", "data": [0, 3]}]},
        "searcher": {"type": "RandomSearcher"},
        "scheduler": scheduler,
    }
    return found if site is None else {**found, "site": site}


def test_a_site_is_a_name_or_a_block_beside_the_task_or_in_the_scheduler() -> None:
    assert make_plan(config("slurm")).site == {"type": "slurm"}
    block = {"type": "slurm", "partition": "short", "time": "2h"}
    assert make_plan(config(block)).site == make_plan(config(site=block)).site == block


@pytest.mark.parametrize(
    ("site", "sentence"),
    [
        ("slrum", "did you mean 'slurm'"),
        ({"type": "slurm", "partion": "short"}, "did you mean 'partition'"),
        ({"type": "slurm", "cpus": 0}, "`cpus` must be a whole number from 1 on, not 0"),
        ({"type": "slurm", "time": "soon"}, "a time is a number of seconds"),
        ({"type": "slurm", "flags": "--x"}, "`flags` is a list of options of sbatch"),
        (7, "a site is a name, or a mapping with a `type`, not 7"),
    ],
)
def test_a_mistake_in_its_settings_is_found_first(site: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("(", "\\(")) as caught:
        make_plan(config(site))
    assert caught.value.path[0] == "site"


def test_gpus_of_this_machine_are_not_those_of_a_cluster() -> None:
    with pytest.raises(ConfigError, match="those of slurm are asked for in `site`"):
        make_plan(config("slurm", gpus_per_job=1))


def test_programs_of_another_machine_need_not_be_here() -> None:
    with pytest.raises(ConfigError, match="there is no program 'no-such-program'"):
        make_plan(config())
    assert make_plan(config("slurm")).template.program == "no-such-program"


def test_another_site_keeps_the_settings_that_stand_there_for_it() -> None:
    block = {"type": "slurm", "partition": "short"}
    assert moved(config(block), "slurm")["site"] == block
    assert moved(config(block), "local")["site"] == {"type": "local"}
    assert moved(config(), block)["site"] == block
