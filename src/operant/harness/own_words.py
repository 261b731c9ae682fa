"""The harness's tree in Operant's own settings: RLlib's words for what both have, setting by setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from operant.algorithms import ALGORITHMS, find_algorithm
from operant.errors import UsageError, nearest
from operant.harness.tree import LIBRARY_GROUPS, Plan, flag, given, whole
from operant.models.settings import ModelSettings

Values = dict[str, Any]


@dataclass(frozen=True)
class Words:
    """RLlib's words for the settings of one algorithm. Settings that RLlib has no word for keep their own names."""

    same: Mapping[str, str]
    """Their name -> ours, where the value is the same."""
    read: Callable[[Values, int], Values] = lambda theirs, num_envs: {}
    """Of theirs, and of the number of environments: those of ours that are counted or said differently."""
    reads: tuple[str, ...] = ()
    """What `read` looks at."""
    without: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """What has no counterpart -> values that ask for what happens here anyway."""


def _read_ppo(theirs: Values, num_envs: int) -> Values:
    if "train_batch_size_per_learner" not in theirs:
        return {}
    batch = _number("training.train_batch_size_per_learner", theirs, 0)
    if batch % num_envs:
        raise UsageError(
            f"training.train_batch_size_per_learner is {batch}, which {num_envs} environments cannot share evenly; "
            f"make it {batch - batch % num_envs or num_envs}"
        )
    return {"rollout": batch // num_envs}


def _read_replay(theirs: Values, num_envs: int) -> Values:
    read: Values = {}
    buffer = theirs.get("replay_buffer_config") or {}
    if not isinstance(buffer, Mapping):
        raise UsageError(f"training.replay_buffer_config is a group of settings, got {buffer!r:.80}")
    for key, value in buffer.items():
        if key == "type":
            read["prioritized"] = "Prioritized" in str(value)
        elif key in _BUFFER:
            read[_BUFFER[key]] = value
        else:
            known = ("type", *_BUFFER)
            raise UsageError(
                f"there is no training.replay_buffer_config.{key}{nearest(key, known)}; known: {', '.join(known)}"
            )
    schedule = theirs.get("epsilon")
    if schedule is not None:
        read |= _read_epsilon(schedule)
    intensity = _number("training.training_intensity", theirs, 0)
    if intensity:
        # Rows learned for each row collected; ours counts gradient steps of a batch.
        batch = _number("training.train_batch_size_per_learner", theirs, 32)
        read |= {"train_every": max(1, round(batch / intensity)), "updates": 1}
    return read


def _number(path: str, values: Values, default: float) -> float:
    found = values.get(path.rpartition(".")[2], default)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not found >= 0:
        raise UsageError(f"{path} is a number from 0 up, got {found!r:.80}")
    return found


_BUFFER = {"capacity": "buffer", "alpha": "priority_alpha", "beta": "priority_beta"}


def _read_epsilon(schedule: Any) -> Values:
    if isinstance(schedule, (int, float)):
        return {"exploration_start": schedule, "exploration_end": schedule, "exploration_steps": 1}
    try:
        (first, start), (last, end) = schedule
        last = int(last)
    except (TypeError, ValueError):
        raise UsageError(
            f"training.epsilon is a number or two points such as [[0, 1.0], [10000, 0.05]] here, got {schedule!r}"
        ) from None
    if first != 0:
        raise UsageError(f"training.epsilon begins at step 0, not at {first}")
    return {"exploration_start": start, "exploration_end": end, "exploration_steps": last}


_GRADIENTS = {"gamma": "gamma", "grad_clip": "max_gradient_norm"}
_REPLAY = {
    **_GRADIENTS,
    "train_batch_size_per_learner": "batch",
    "n_step": "n_step",
    "num_steps_sampled_before_learning_starts": "learning_starts",
}
_ON_POLICY = {**_GRADIENTS, "lr": "learning_rate", "lambda_": "gae_lambda", "entropy_coeff": "entropy_weight"}
_ON_POLICY |= {"vf_loss_coeff": "value_weight"}
WORDS = {
    "ppo": Words(
        same={**_ON_POLICY, "num_epochs": "epochs", "minibatch_size": "minibatch", "clip_param": "clip"},
        read=_read_ppo,
        reads=("train_batch_size_per_learner",),
        without={"use_kl_loss": (False,), "kl_coeff": (0, 0.0), "use_critic": (True,), "use_gae": (True,)},
    ),
    "a2c": Words(same=_ON_POLICY, read=_read_ppo, reads=("train_batch_size_per_learner",)),
    "dqn": Words(
        same={
            **_REPLAY,
            "lr": "learning_rate",
            "double_q": "double",
            "dueling": "dueling",
            "target_network_update_freq": "target_every",
            "tau": "target_rate",
            "adam_epsilon": "optimizer_eps",
        },
        read=_read_replay,
        reads=("replay_buffer_config", "epsilon", "training_intensity"),
        without={"num_atoms": (1,), "noisy": (False,), "grad_clip_by": ("global_norm",)},
    ),
    "sac": Words(
        same={
            **_REPLAY,
            "lr": "learning_rate",
            "critic_lr": "learning_rate",
            "actor_lr": "actor_learning_rate",
            "alpha_lr": "temperature_rate",
            "tau": "target_rate",
            "initial_alpha": "temperature",
        },
        read=lambda theirs, num_envs: (
            _read_replay(theirs, num_envs)
            | ({"critics": 2 if theirs["twin_q"] else 1} if "twin_q" in theirs else {})
            | ({} if theirs.get("target_entropy", "auto") == "auto" else {"target_entropy": theirs["target_entropy"]})
        ),
        reads=("replay_buffer_config", "training_intensity", "twin_q", "target_entropy"),
        without={"target_network_update_freq": (0, 1)},
    ),
}

# Settings of RLlib's algorithms that are nothing like ours.
_RLLIBS = {
    *("add_default_connectors_to_learner_pipeline", "kl_target", "learner_class", "learner_config_dict"),
    *("learner_connector", "sigma0", "td_error_loss_fn", "v_max", "v_min", "vf_clip_param"),
}

# Group -> RLlib's name -> ours.
_ENVIRONMENT = {"env": "env.id", "env_config": "env.arguments"}
_ENVIRONMENT |= {name: f"env.{name}" for name in ("wrappers", "normalize_obs", "normalize_reward")}
_MODEL = {"fcnet_hiddens": "model.hidden", "fcnet_activation": "model.activation", "module": "model.network"}
_MODEL |= {"lstm_cell_size": "model.recurrent_size", "max_seq_len": "model.sequence"}
_MODEL |= {one.name: f"model.{one.name}" for one in fields(ModelSettings) if one.name != "device"}
# What says how RLlib is to do something that happens here anyway, or not at all -> values that may stand.
_ANY = object()
_WITHOUT: dict[str, dict[str, tuple[Any, ...]]] = {
    "environment": {
        "clip_rewards": (False,),
        "normalize_actions": (True,),
        "clip_actions": (False, True),
        "disable_env_checking": (False, True),
        "is_atari": (False,),
    },
    "evaluation": {"evaluation_parallel_to_training": (False,), "evaluation_num_env_runners": (_ANY,)},
    "exploration": {"explore": (True,)},
    "framework": {"framework": ("torch",)},
    "resources": {"num_cpus_for_main_process": (_ANY,), "placement_strategy": (_ANY,)},
    "rollouts": {
        "num_cpus_per_env_runner": (_ANY,),
        "num_gpus_per_env_runner": (0,),
        "rollout_fragment_length": ("auto",),
        "batch_mode": ("truncate_episodes",),
        "sample_timeout_s": (_ANY,),
        "compress_observations": (False,),
        "validate_env_runners_after_construction": (_ANY,),
        "env_to_module_connector": (_ANY,),  # networks get rows of numbers here without one
    },
    "model": {"vf_share_layers": (False,)},
    "multi_agent": {"count_steps_by": ("env_steps",)},
    "learners": {"num_learners": (0, 1), "num_cpus_per_learner": (_ANY,)},
    "fault_tolerance": {
        "restart_failed_env_runners": (False,),
        "ignore_env_runner_failures": (False,),
        "restart_failed_sub_environments": (False,),
    },
    "reporting": {},
}
_READ = {
    "rollouts": ("num_env_runners", "num_envs_per_env_runner"),
    "evaluation": ("evaluation_interval", "evaluation_duration", "evaluation_duration_unit", "evaluation_config"),
    "learners": ("num_gpus_per_learner",),
    "model": ("use_lstm",),
    "multi_agent": ("policies", "policy_mapping_fn"),
    "reporting": ("min_sample_timesteps_per_iteration", "metrics_num_episodes_for_smoothing"),
}


def algorithm_name(plan: Plan) -> str:
    """The algorithm as Operant calls it."""
    name = plan.algorithm.lower()
    if name not in ALGORITHMS:
        known = ALGORITHMS.names
        raise UsageError(
            f"algo.name is {plan.algorithm!r}{nearest(name, known)}; Operant's own are {', '.join(known)} "
            "(algo.library=rllib has those of RLlib)"
        )
    return name


def own_settings(plan: Plan) -> tuple[Values, Values]:
    """Dotted settings of a `TrainConfig` from the groups of a tree, and those of its algorithm."""
    settings: Values = {}
    for group, table in (("environment", _ENVIRONMENT), ("model", _MODEL)):
        settings |= _translated(plan, group, table)
    for group in LIBRARY_GROUPS:
        if group not in ("environment", "model", "training"):
            _translated(plan, group, {})
    if flag(plan, "model", "use_lstm"):
        settings["model.recurrent"] = "lstm"
    settings |= _policies(plan)
    workers = whole(plan, "rollouts.num_env_runners", 0)
    rows = whole(plan, "rollouts.num_envs_per_env_runner", 1, least=1)
    if workers and "policies" in settings:
        raise UsageError(
            f"rollouts.num_env_runners is {workers}; several agents are stepped in one process: 0, and "
            f"rollouts.num_envs_per_env_runner={workers * rows}"
        )
    settings |= {"env.workers": workers, "env.num_envs": max(1, workers) * rows}
    settings["device"] = "auto" if _number("learners.num_gpus_per_learner", given(plan, "learners"), 0) else "cpu"
    if "metrics_num_episodes_for_smoothing" in given(plan, "reporting"):
        settings["log.window"] = whole(plan, "reporting.metrics_num_episodes_for_smoothing", 1, least=1)
    return settings, _algorithm_settings(plan, settings["env.num_envs"])


def _policies(plan: Plan) -> Values:
    """Which agent has which policy. One policy is what agents of a kind share anyway."""
    told = given(plan, "multi_agent")
    policies = [str(name) for name in told.get("policies") or []]
    if len(policies) < 2:
        return {}
    mapping = told.get("policy_mapping_fn")
    if mapping is None:
        raise UsageError(
            f"multi_agent.policies names {len(policies)} policies: multi_agent.policy_mapping_fn says which agent "
            "has which"
        )
    return {"policies": policies, "policy_mapping": mapping}


def _translated(plan: Plan, group: str, table: Mapping[str, str]) -> Values:
    found: Values = {}
    without, read = _WITHOUT.get(group, {}), _READ.get(group, ())
    for key, value in given(plan, group).items():
        if key in table:
            found[table[key]] = value
        elif key in without:
            _check_without(plan, f"{group}.{key}", value, without[key])
        elif key not in read:
            raise plan.unknown(f"{group}.{key}", (*table, *without, *read), "algo.library=operant")
    return found


def _check_without(plan: Plan, path: str, value: Any, harmless: tuple[Any, ...]) -> None:
    if _ANY not in harmless and value not in harmless:
        raise UsageError(
            f"{path}{plan.origins.of(path)} is {value!r}, which has no counterpart with algo.library=operant; "
            f"{', or '.join(['leave it out', *filter(None, [' or '.join(repr(one) for one in harmless)])])}"
        )


def _algorithm_settings(plan: Plan, num_envs: int) -> Values:
    name = algorithm_name(plan)
    words = WORDS.get(name, Words(same={}))
    own = {one.name for one in fields(find_algorithm(name)[1])}
    theirs, settings = given(plan, "training"), {}
    for key, value in theirs.items():
        if key in words.reads:
            continue
        if key in words.same:
            settings[words.same[key]] = value
        elif key in own:
            settings[key] = value
        elif key in words.without or key in _RLLIBS:
            _check_without(plan, f"training.{key}", value, words.without.get(key, ()))
        else:
            known = {*words.same, *words.reads, *words.without, *own}
            raise plan.unknown(f"training.{key}", known, f"Operant's {plan.algorithm}")
    return settings | words.read(theirs, num_envs)
