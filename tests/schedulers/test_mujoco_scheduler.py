from __future__ import annotations

import json
from pathlib import Path

import pytest

from operant.benchmark import make_function
from operant.cli.search_scripts import ctl_main, init_main, run_main
from operant.errors import ConfigError, UsageError
from operant.schedulers.mujoco_scheduler import MujocoJob, MujocoScheduler
from operant.schedulers.naive_scheduler import NaiveScheduler
from operant.schedulers.views.region_tree import region_tree

EXAMPLES = Path(__file__).parents[2] / "examples" / "mujoco"


class Notes:
    """A view that keeps what the user is told."""

    live = False

    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def config(count=4, searcher="RandomSearcher", func_type="ackley", parallel_size=1, **scheduler):
    return {
        "task": {
            "template": "",
            "search_args": [{"type": "Real", "name": f"a{i}", "data": [-1, 1]} for i in range(count)],
        },
        "searcher": {"type": searcher, "reward_attribute": "default"},
        "scheduler": {
            "type": "FIFO",
            "parallel_size": parallel_size,
            "func_type": func_type,
            "stop_criterion": {"max_tries": 6, **scheduler.pop("rules", {})},
            **scheduler,
        },
    }


def rewards(scheduler):
    return [proposal.reward for _, proposal in sorted(scheduler.scheduler.state.proposals.items())]


@pytest.mark.parametrize("searcher", ["RandomSearcher", "SkoptSearcher", "LamctsSearcher"])
def test_a_formula_is_searched_by_the_searchers_that_gml_names(tmp_path, searcher):
    scheduler = MujocoScheduler(tmp_path / "s", config(searcher=searcher))
    outcome = scheduler.run()
    assert outcome.status == "FINISHED" and outcome.tries == 6
    ackley = make_function("ackley", 4)
    for proposal in scheduler.scheduler.state.proposals.values():
        assert proposal.reward == ackley(list(proposal.config.values()), 0)


def test_without_a_name_the_number_of_arguments_decides(tmp_path):
    pytest.importorskip("mujoco")
    scheduler = MujocoScheduler(tmp_path / "s", config(33, func_type=None))
    assert scheduler.run().tries == 6
    assert scheduler._function.name == "hopper"


def test_several_processes_give_the_same_rewards(tmp_path):
    pytest.importorskip("mujoco")
    one = MujocoScheduler(tmp_path / "one", config(33, func_type="hopper"))
    two = MujocoScheduler(tmp_path / "two", config(33, func_type="hopper", parallel_size=2))
    one.run()
    two.run()
    assert rewards(one) == rewards(two)


class Lucky:
    name, dims, low, high, rollouts = "lucky", 1, -1.0, 1.0, 3

    def __call__(self, point, seed):
        return 10.0

    def returns(self, point, seed, rollouts):
        return [9.0] * rollouts


def test_a_reward_at_the_threshold_is_measured_again_and_what_that_cost_is_counted():
    job = MujocoJob(Lucky(), "j", {"a0": 0.5}, threshold=10.0, confirm_rollouts=20)
    job.start()
    assert (job.status, job.reward, job.episodes, job.confirming_episodes) == ("FINISHED", 9.0, 23, 20)
    below = MujocoJob(Lucky(), "j", {"a0": 0.5}, threshold=11.0)
    below.start()
    assert (below.reward, below.episodes, below.confirming_episodes) == (10.0, 3, 0)


def test_max_reward_ends_the_search_and_the_episodes_are_told(tmp_path):
    pytest.importorskip("mujoco")
    view = Notes()
    settings = config(16, func_type="swimmer", rules={"max_reward": -1000.0}, rollouts=2)
    scheduler = MujocoScheduler(tmp_path / "s", settings, view=view)
    assert scheduler.run().tries == 1
    assert view.told[-1] == "22 episodes, of them 20 to confirm rewards at `max_reward`"


def test_a_formula_is_not_random_so_confirming_costs_nothing(tmp_path):
    view = Notes()
    scheduler = MujocoScheduler(tmp_path / "s", config(rules={"max_reward": -1000.0}), view=view)
    assert scheduler.run().tries == 1
    assert view.told[-1] == "1 episodes, of them 0 to confirm rewards at `max_reward`"


def test_a_search_does_not_go_on_with_another_function(tmp_path):
    MujocoScheduler(tmp_path / "s", config()).run()
    assert "func_type: ackley" in (tmp_path / "s" / "search.yaml").read_text()
    with pytest.raises(UsageError, match=r"another configuration \(scheduler.func_type\)"):
        MujocoScheduler(tmp_path / "s", config(func_type="levy"), resume=True).run()
    assert MujocoScheduler(tmp_path / "s", config(), resume=True).run().tries == 6


@pytest.mark.parametrize("template", ["", None])
def test_an_empty_template_may_be_left_empty(tmp_path, template):
    settings = config()
    settings["task"]["template"] = template
    assert MujocoScheduler(tmp_path / "s", settings).run().tries == 6


def test_a_template_that_is_not_used_is_told(tmp_path):
    view, settings = Notes(), config()
    settings["task"]["template"] = "python train.py {a0}"
    MujocoScheduler(tmp_path / "s", settings, view=view).run()
    assert "a benchmark starts no program: the template is not used" in view.told


REAL = {"type": "Real", "name": "b", "data": [0, 1]}


@pytest.mark.parametrize(
    ("search_args", "why"),
    [
        (
            [REAL, {"type": "Categorical", "name": "a", "data": ["x", 1]}],
            r"search_args\[1\].* 'a' has values that are no",
        ),
        (
            [{"type": "Categorical", "name": "a", "data": [0, 1]}, {**REAL, "when": {"a": 1}}],
            r"search_args\[1\].* 'b' is there under a condition",
        ),
        ([{"type": "Nested", "data": [{"a": 0, "b": 1}, {"a": 1, "b": 2}]}], r"search_args\[0\].* has rows"),
    ],
)
def test_each_argument_is_one_number(tmp_path, search_args, why):
    settings = config()
    settings["task"]["search_args"] = search_args
    with pytest.raises(ConfigError, match=why):
        MujocoScheduler(tmp_path / "s", settings)


def test_categories_that_are_numbers_are_coordinates(tmp_path):
    settings = config()
    settings["task"]["search_args"] = [REAL, {"type": "Categorical", "name": "a", "data": [0, 0.5, 1]}]
    assert MujocoScheduler(tmp_path / "s", settings).run().tries == 6


@pytest.mark.parametrize("place", [(), ("scheduler",)])
@pytest.mark.parametrize(
    ("key", "value"), [("seeds", [1, 2]), ("final_check", {"seeds": 3}), ("site", {"type": "slurm"})]
)
def test_what_is_said_of_jobs_is_refused(tmp_path, place, key, value):
    settings = config()
    (settings["scheduler"] if place else settings)[key] = value
    with pytest.raises(ConfigError, match="a benchmark") as caught:
        MujocoScheduler(tmp_path / "s", settings)
    assert caught.value.path == (*place, key)


@pytest.mark.parametrize("text", ["", "[1, 2]", "text"])
def test_a_file_that_describes_no_search_is_told(tmp_path, text):
    file = tmp_path / "search.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="a search is described by a mapping"):
        MujocoScheduler(tmp_path / "s", file)


def test_options_for_programs_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_main(["-t", "s", "search.yaml", "--benchmark", "--site", "slurm"]) == 1
    assert (
        capsys.readouterr().err == "search-run: --site and --symlinks are for programs, and --benchmark starts none\n"
    )


def test_restart_goes_on_with_a_benchmark(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("search.yaml").write_text(json.dumps(config()))
    assert init_main([]) == 0
    assert run_main(["-t", "s", "search.yaml", "--benchmark"]) == 0
    assert ctl_main(["restart", "-t", "s"]) == 0
    assert "goes on in the background" in capsys.readouterr().out


def test_mistakes_have_their_line(tmp_path):
    file = tmp_path / "search.yaml"
    file.write_text("""task:
    template: ""
    search_args:
        - {type: Real, name: a0, data: [-1, 1]}
searcher: {type: RandomSearcher}
scheduler:
    func_type: hoper
""")
    with pytest.raises(ConfigError, match="did you mean 'hopper'") as caught:
        MujocoScheduler(tmp_path / "s", file)
    assert caught.value.line == 7


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_example_files_can_be_run(tmp_path, file):
    pytest.importorskip("mujoco")
    scheduler = MujocoScheduler(tmp_path / "s", file)
    assert scheduler._function.dims == scheduler.plan.space.dimensions
    assert scheduler._threshold == {"swimmer": 325.0, "hopper": 3120.0}[scheduler._function.name]


def test_the_tree_is_the_same_from_the_journal(tmp_path):
    settings = config(searcher="LamctsSearcher", rules={"max_tries": 50}, filter_criterion="a0 > 0.8")
    settings["searcher"] |= {"ninits": 12, "leaf_size": 10}
    scheduler = MujocoScheduler(tmp_path / "s", settings)
    scheduler.run()
    text = region_tree(tmp_path / "s")
    assert text == scheduler.plan.searcher.tree()
    dropped = len(scheduler.scheduler.state.proposals) - 50
    assert dropped > 0 and text.startswith(f"root: region, {50 + dropped} samples")


def test_a_search_without_a_tree_says_so(tmp_path):
    MujocoScheduler(tmp_path / "s", config()).run()
    with pytest.raises(UsageError, match="has no tree"):
        region_tree(tmp_path / "s")


@pytest.mark.parametrize("name", ["x" * 5000, {"a": 1}, [], 3.5])
def test_a_function_of_no_name_is_told(tmp_path, name):
    with pytest.raises(ConfigError, match="unknown func_type"):
        MujocoScheduler(tmp_path / "s", config(func_type=name))


@pytest.mark.parametrize(
    ("func_type", "why"), [("ackley", "`func_type` is for benchmarks"), (None, "template is empty")]
)
def test_without_benchmark_the_switch_is_named(tmp_path, func_type, why):
    given = config(func_type=func_type)
    if func_type is None:
        del given["scheduler"]["func_type"]
    with pytest.raises(ConfigError, match=f"{why}.*search-run --benchmark"):
        NaiveScheduler(tmp_path / "s", given)
