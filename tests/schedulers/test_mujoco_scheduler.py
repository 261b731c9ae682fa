from __future__ import annotations

from pathlib import Path

import pytest

from operant.benchmark import make_function
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
    view = Notes()
    scheduler = MujocoScheduler(tmp_path / "s", config(rules={"max_reward": -1000.0}), view=view)
    assert scheduler.run().tries == 1
    assert view.told[-1] == "21 episodes, of them 20 to confirm rewards at `max_reward`"


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
    settings = config(searcher="LamctsSearcher", rules={"max_tries": 50})
    settings["searcher"] |= {"ninits": 12, "leaf_size": 10}
    scheduler = MujocoScheduler(tmp_path / "s", settings)
    scheduler.run()
    text = region_tree(tmp_path / "s")
    assert text == scheduler.plan.searcher.tree()
    assert text.startswith("root: region, 50 samples")


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
