"""What an algorithm is to the rest of Operant: it says what it learns from, it acts, it learns, it can be saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from operant.errors import UsageError

if TYPE_CHECKING:
    from gymnasium import Space

    from operant.models.observations import ObservationAdapter
    from operant.models.settings import ModelSettings
    from operant.models.spaces import ActionSpec

Array = npt.NDArray[Any]
Metrics = dict[str, float]
Actor = Callable[[Any, Array | None, Any], tuple[Array, Array, dict[str, Any]]]
"""What `Algorithm.actor` makes, called for each step with adapted observations, their mask and the policy's state:
gives actions as the environment takes them, as they are learned from, and further fields (``state``: what to keep)."""

# What there is a collector and a rhythm for: see `operant.training.sources`.
_UNITS = {"fresh": ("step", "episode", "candidate"), "replay": ("step", "sequence"), "dataset": ("step", "sequence")}


@dataclass(frozen=True)
class ActOut:
    """What a policy answers to a batch of observations."""

    action: Array
    """As the environment takes it, one for each environment."""
    state: Any = None
    """What the policy wants back at the next step; None for policies without memory."""
    extras: dict[str, Any] = field(default_factory=dict)
    """``action`` as it is learned from (a Gaussian's is not clipped), of policies that are sampled also ``log_prob``
    and ``entropy``."""


@dataclass(frozen=True)
class DataSpec:
    """What an algorithm learns from, made from its settings. `operant.training.sources` reads it.

    What `learn` gets, by `unit` and `source`:

    - steps, fresh: a rollout of `count` steps of each environment [T, N, …]; ``obs`` has a row more, what came last
    - episodes, fresh: `count` whole ones, one behind the other [B, …]; ``length`` [E] says how long each is
    - candidates, fresh: `count` of them, ``candidate`` [C, …], and ``return`` and ``length`` [C] of an episode of each
    - steps, replay: `batch` transitions [B, …] of `n_step` steps, with ``discount`` and maybe ``weight``, ``next_mask``
    - sequences, replay: `batch` runs of steps within episodes [burn_in + length, B, …], with ``mask`` and ``first``
    - steps or sequences, dataset: the same from recorded transitions; nothing is collected, an update counts as a step
    """

    unit: str
    source: str
    fields: tuple[str, ...]
    """What collectors store, exactly these. ``mask``: which actions were allowed (of replay also ``next_mask``);
    ``final_obs`` with ``final_at``: last observations of truncated episodes; ``state``: what a policy with memory
    remembered before the step; any other is taken from what the actor gives beside its action, such as ``log_prob``."""
    gamma: float = 0.99
    """Discount, for n-step returns and for the scale of rewards."""
    count: int = 1
    """Fresh data: steps of each environment, episodes or candidates of one round of learning."""
    lag: int = 0
    """Fresh data: rounds of learning by which the policy that acted may be behind the one that learns; 0: none."""
    digested: bool = False
    """Fresh data: a worker that collects hands on what the policy's `digest` makes of a rollout, such as a gradient,
    and each is learned from by itself."""
    capacity: int = 100_000
    """Replay: transitions that are kept."""
    batch: int = 32
    """Replay and datasets: transitions or sequences of one call of `learn`."""
    every: int = 1
    """Replay: environment steps between rounds of learning."""
    updates: int = 1
    """Replay: calls of `learn` in a round; 0: as many as environment steps."""
    ahead: int = 1
    """Replay without priorities: batches of a round that are drawn at once; more than one is shown to `foresee`."""
    starts: int = 0
    """Replay: environment steps before the first round."""
    n_step: int = 1
    alpha: float | None = None
    """Prioritised replay: how much priorities count; None: all are drawn alike."""
    length: int = 1
    """Sequences: steps that are learned from."""
    burn_in: int = 0
    """Sequences: steps before these, to find the state."""
    path: str = ""
    """Datasets: the file of recorded transitions."""

    def __post_init__(self) -> None:
        units = _UNITS.get(self.source)
        if units is None:
            raise UsageError(f"DataSpec.source is {', '.join(_UNITS)}; got {self.source!r}")
        if self.unit not in units:
            raise UsageError(f"{self.source} data come by {', '.join(units)}; DataSpec.unit is {self.unit!r}")

    def remembering(self, length: int, burn_in: int) -> DataSpec:
        """The same for a policy with memory: states are stored, and what comes from replay are sequences."""
        fields = (*self.fields, "state")
        if self.source == "fresh":
            return replace(self, fields=fields)
        return replace(self, fields=fields, unit="sequence", length=length, burn_in=burn_in, ahead=1)

    @property
    def on_policy(self) -> bool:
        """Whether the policy that learns must be the one that acted."""
        return self.source == "fresh"


class Policy(Protocol):
    """Chooses actions. It has no optimizer and nothing else that only learning needs, so another process may hold one:
    `Algorithm.make_policy` makes it, `load_weights` takes what `Algorithm.weights` gives. Leading axis of all arrays:
    the environments."""

    settings: Any
    model: ModelSettings
    """Of the networks."""
    data: DataSpec
    """What its algorithm learns from: collectors store these fields. What `data_spec(settings)` of the class says; of a
    network with memory `remembering`."""
    adapter: ObservationAdapter
    """Turns observations into what networks take: collectors adapt each once."""
    actions: ActionSpec
    device: str
    network: Any
    """The `nn.Module` that acts, or None."""

    @property
    def path(self) -> str:
        """Which implementation of the networks runs, in words for the log."""
        ...

    def set_progress(self, steps: int, total_steps: int) -> None:
        """Tell how far the training is, for schedules. Called before each rollout, or before each step from replay."""
        ...

    def actor(self, rng: np.random.Generator | None, steps: int, rows: int, *, epsilon: float | None = None) -> Actor:
        """What acts for the next `steps` steps of `rows` environments: noise for all of them is drawn at once.

        Without a generator it is the best action, for any number of steps. `epsilon` is a share of random actions that
        a loop sets itself, for policies that have one.
        """
        ...

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        mask: Array | None = None,
        explore: bool,
        rng: np.random.Generator,
        epsilon: float | None = None,
    ) -> ActOut:
        """Actions for observations as the environment gives them; the slow door over `actor`."""
        ...

    @property
    def outputs(self) -> int:
        """How many numbers its network gives for one observation."""
        ...

    def to_env(self, action: Array) -> Array:
        """Actions as they are learned from [N, …], as the environment takes them."""
        ...

    def from_env(self, action: Array) -> Array:
        """The inverse, for transitions that somebody else recorded."""
        ...

    def weights(self) -> dict[str, Array]:
        """What acts, as names and arrays: enough for `load_weights` of a second instance to act alike."""
        ...

    def load_weights(self, weights: dict[str, Array]) -> None: ...


class Algorithm(Policy, Protocol):
    """Learns the policy that it is.

    `BaseAlgorithm` has what most algorithms share. Where ``data.unit`` is ``candidate`` it is a `PopulationAlgorithm`,
    with ``data.ahead`` above 1 a `ForeseeingAlgorithm`, with ``state`` among the fields its policy is a
    `RecurrentPolicy`.
    """

    Settings: ClassVar[type]
    """A frozen dataclass; its defaults are those of the algorithm."""
    default_model: ClassVar[ModelSettings]
    """The networks where nothing is said of them."""
    model_roles: ClassVar[tuple[tuple[str, str], ...]]
    """Networks that `models` in a `frame_config` lists: the setting of `ModelSettings` that each is, and what it is."""
    takes_criterion: ClassVar[bool]
    """Whether `criterion` may be set."""
    takes_scaled: ClassVar[bool]
    """Whether observations may come scaled by what is seen in training; recorded ones are not."""
    criterion: Callable[[Any, Any], Any] | None
    """A loss of predictions and targets, of the user's own, that is used instead of that of the settings."""
    optimizer: Any
    """What has ``step(rate)``, ``state_dict`` and ``load_state_dict``, or None."""
    measure: bool
    """Whether `learn` computes what to log; a loop turns it off between log lines."""
    entropy_limit: float | None
    """What ``entropy`` among the metrics is at most, for warnings; None where there is no such limit."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: Any = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> None: ...

    @staticmethod
    def data_spec(settings: Any) -> DataSpec:
        """What is learned from, with these settings; asked before there are environments."""
        ...

    @classmethod
    def make_policy(
        cls,
        observation_space: Space[Any],
        action_space: Space[Any],
        settings: Any = None,
        model: ModelSettings | None = None,
        seed: int = 0,
    ) -> Policy:
        """What acts, without what learns: for evaluations, and for processes that only collect."""
        ...

    @property
    def beta(self) -> float:
        """How far importance weights correct for prioritised replay now."""
        ...

    def learn(self, batch: Any) -> tuple[Metrics, Array | None]:
        """Improve the policy from a batch as `data` says; returns what to log, and new priorities if the data has
        them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly: a tree of dicts, arrays and plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class PopulationAlgorithm(Algorithm, Protocol):
    """Learns from how well candidates did: ``learn({"candidate": [C, …], "return": [C]})``, and ``length`` if asked."""

    def candidates(self, count: int, rng: np.random.Generator) -> Array:
        """What is to be tried next [count, …]."""
        ...

    def candidate_actor(self, candidates: Array) -> Actor:
        """What acts by candidate i in environment i."""
        ...


class ForeseeingAlgorithm(Algorithm, Protocol):
    """Part of what it learns from does not change within a round: one call for several batches takes less time."""

    def foresee(self, batch: Any) -> dict[str, Any]:
        """Further fields for batches that lie one behind the other; `learn` then gets each of them with its part."""
        ...


class ValueAlgorithm(Algorithm, Protocol):
    """Has a value function, for advantages that a loop of one's own estimates."""

    def values(self, obs: Any) -> Array:
        """The value of adapted observations."""
        ...


class RecurrentPolicy(Policy, Protocol):
    """Remembers: collectors hand its state from step to step, and begin each episode with a new one."""

    def initial_state(self, rows: int) -> Any:
        """A tree of arrays [rows, …]."""
        ...
