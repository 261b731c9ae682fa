"""Replay in processes of its own, each with a part of it: the role `replay` (Horgan et al. 2018, arXiv 1803.00933).

Workers put what they collect into the queue of one shard after the other. The learner has one request under way at
each shard: while it learns from a batch, the next one is drawn. New priorities travel with the request after it; those
of steps that were overwritten meanwhile are left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from operant.algorithms import find_algorithm
from operant.algorithms.contracts import Algorithm, DataSpec, Metrics
from operant.data import tree_map
from operant.data.batches import add_step, sample_batch, take_rows
from operant.data.chunks import check_chunks
from operant.errors import OperantError, UsageError
from operant.framework import RemoteError, Standalone, Task
from operant.framework.errors import FrameworkError
from operant.framework.parallel.router import Router
from operant.training.actors import environments_of, queue_size, shard_queue
from operant.training.collecting import Collector
from operant.training.config import TrainConfig
from operant.training.remote import Message, Remote, RemoteReplay
from operant.training.sources import learn_from, make_replay

Batch = dict[str, Any]


def shard_node(config: TrainConfig, shard: int) -> int:
    return config.workers + 1 + shard


def share_out(masses: list[float], size: int, rng: np.random.Generator) -> list[int]:
    """How many rows of a batch each shard gives: by what its steps count, what does not divide by lot."""
    exact = np.array(masses) / sum(masses) * size
    counts = np.floor(exact).astype(int)
    rest = size - int(counts.sum())
    if rest:
        left = exact - counts
        counts += rng.multinomial(rest, left / left.sum())
    return [int(count) for count in counts]


def put_together(parts: list[Batch], total: float, beta: float) -> Batch:
    """One batch from those of several shards, with importance weights as if one buffer had drawn it."""
    batch: Batch = {
        name: tree_map(lambda *leaves: np.concatenate(leaves), *(part[name] for part in parts)) for name in parts[0]
    }
    probability = batch.pop("mass") / total
    batch["weight"] = ((probability / probability.min()) ** -beta).astype(np.float32)
    return batch


class Shards:
    """The learner's side of all shards."""

    def __init__(self, config: TrainConfig, spec: DataSpec, rng: np.random.Generator) -> None:
        self._config, self._spec, self._rng = config, spec, rng
        count = config.replay_shards
        self._router: Router | None = None
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="operant-shard")
        self._masses = [0.0] * count
        self.rows = [0] * count
        self.lost = 0
        """Steps that were in shards that died."""
        self._priorities: list[list[tuple[Any, Any, Any]]] = [[] for _ in range(count)]
        self._asked: list[Future[Any]] | None = None
        self._drawn: list[tuple[int, int]] = []  # of the batch that is learned from: shard and rows

    def connect(self, router: Router) -> None:
        self._router = router

    def shard_died(self, shard: int) -> int:
        """Its steps are gone; returns how many these were."""
        lost, self.rows[shard], self._masses[shard] = self.rows[shard], 0, 0.0
        self._priorities[shard].clear()
        self.lost += lost
        return lost

    def batch(self, beta: float) -> Batch | None:
        """The next one; None where shards have nothing to give (yet)."""
        if self._asked is None:
            self._asked = self._ask()
        found = [one.result() for one in self._asked]
        parts = [(shard, part) for shard, part in enumerate(found) if part is not None]
        total = sum(self._masses)
        self._asked = self._ask()
        self._drawn = [(shard, len(part["index"])) for shard, part in parts]
        return put_together([part for _, part in parts], total, beta) if parts and total > 0.0 else None

    def _ask(self) -> list[Future[Any]]:
        if not sum(self._masses):  # nothing is known of them yet
            for one in [self._threads.submit(self._exchange, shard, 0) for shard in range(len(self.rows))]:
                one.result()
        known = sum(self._masses) > 0.0
        counts = share_out(self._masses, self._spec.batch, self._rng) if known else [0] * len(self.rows)
        return [self._threads.submit(self._exchange, shard, count) for shard, count in enumerate(counts)]

    def _exchange(self, shard: int, count: int) -> Batch | None:
        """Priorities there, a part of a batch back; None while the shard is away or empty."""
        priorities, self._priorities[shard] = self._priorities[shard], []
        try:
            node = shard_node(self._config, shard)
            answer = self._call(node, "exchange", priorities, count)
        except RemoteError:
            raise
        except FrameworkError:
            return None  # it is being replaced
        self._masses[shard], self.rows[shard] = answer["mass"], answer["rows"]
        return cast(Batch | None, answer["batch"])

    def _call(self, node: int, name: str, *args: Any) -> Any:
        assert self._router is not None
        return self._router.call(node, name, args, {}, self._config.silence)

    def update_priorities(self, index: Any, priority: Any, generation: Any) -> None:
        """Of the newest batch."""
        at = 0
        for shard, count in self._drawn:
            here = slice(at, at + count)
            self._priorities[shard].append((index[here], np.asarray(priority)[here], generation[here]))
            at += count

    def save(self, folder: Path) -> list[Any]:
        """Every shard writes its steps there; returns what `load` needs."""
        nodes = [shard_node(self._config, shard) for shard in range(len(self.rows))]
        return [self._call(node, "save", str(folder)) for node in nodes]

    def load(self, folder: Path, manifests: list[Any]) -> None:
        for shard, manifest in enumerate(manifests):
            node = shard_node(self._config, shard)
            self.rows[shard], self._masses[shard] = self._call(node, "load", str(folder), manifest)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class ShardedReplay(RemoteReplay):
    """Replay that workers fill and shards hold: the learner counts steps, and learns in the ratio of one process."""

    def __init__(
        self, algorithm: Algorithm, collector: Collector, rng: np.random.Generator, config: TrainConfig
    ) -> None:
        super().__init__(algorithm, collector, rng, config)
        if self.spec.unit != "step":
            raise UsageError("replay_shards hold single steps; a policy with memory learns from sequences")
        self._shards = Shards(config, self.spec, rng)
        self._replay: tuple[Path, list[Any]] | None = None  # of the checkpoint that is resumed

    def describe(self) -> list[str]:
        return [*super().describe(), f"{self.config.replay_shards} processes hold replay"]

    @contextmanager
    def connected(self) -> Iterator[Standalone | None]:
        with super().connected() as router:
            self._shards.connect(cast(Router, router))
            try:
                if self._replay is not None:
                    self._shards.load(*self._replay)
                yield router
            finally:
                self._shards.close()

    def _restarted(self, node: int, why: str) -> None:
        shard = node - self.config.workers - 1
        if shard < 0:
            super()._restarted(node, why)
            return
        self.restarts += 1
        lost = self._shards.shard_died(shard)
        self._news.append(f"shard {shard} of replay is replaced, and {lost:,} steps in it are lost: {why}")

    def _assembled(self, taken: list[Message]) -> int:
        return sum(message["steps"] for message in taken)

    def _update(self) -> Metrics:
        batch = self._shards.batch(self.algorithm.beta)
        if batch is None:
            return {}  # all shards are empty: they were replaced, or what is on its way to them has not arrived
        metrics, priorities = learn_from(self.algorithm, batch)
        if priorities is not None:
            self._shards.update_priorities(batch["index"], priorities, batch["generation"])
        return dict(metrics)

    def figures(self) -> Metrics:
        return super().figures() | {
            "workers/lost": float(self._shards.lost),
            **{f"replay/{shard}/rows": float(rows) for shard, rows in enumerate(self._shards.rows)},
        }

    def save(self, folder: Path) -> dict[str, Any]:
        state = Remote.save(self, folder)
        state["workers"] |= {"owed": self._owed, "drawn": self._drawn}
        try:
            manifests = self._shards.save(folder)
            check_chunks(folder, manifests)
        except (OperantError, FrameworkError, TimeoutError) as error:
            self._news.append(f"replay is not saved with this checkpoint: {error}")
            manifests = []
        return {**state, "replay": {"shards": manifests}}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        Remote.load(self, folder, state)
        self._owed, self._drawn = (int(state["workers"][name]) for name in ("owed", "drawn"))
        manifests = state["replay"].get("shards", [])
        if len(manifests) == self.config.replay_shards:
            self._replay = (folder, manifests)
        else:
            self._news.append("replay begins empty: its shards were not saved, or are not as many as then")


def hold_replay(config: TrainConfig) -> None:
    """The main function of a process that holds a shard."""
    with Task(labels="replay") as task:
        router = cast(Router, task.router)
        shard = router.node_id - config.workers - 1
        algorithm, _ = find_algorithm(config.algorithm["name"])
        spec = algorithm.data_spec(config.algorithm_settings)
        _Shard(task, config, spec, shard).run()


class _Shard:
    def __init__(self, task: Task, config: TrainConfig, spec: DataSpec, shard: int) -> None:
        capacity = -(-spec.capacity // config.replay_shards)
        self._task, self._spec = task, spec
        self._buffer = make_replay(replace(spec, capacity=capacity), environments_of(config, spec, 0))
        self._lock = threading.Lock()
        incarnation = cast(Router, task.router).spec.incarnation
        self._rng = np.random.default_rng([config.seed, shard, incarnation, 14])
        self._queue = task.queue(shard_queue(shard), queue_size(config), host=cast(Router, task.router).node_id)
        for name in ("exchange", "save", "load"):
            task.expose(name, self._locked(getattr(self, f"_{name}")))

    def _locked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with self._lock:
                return function(*args)

        return run

    def run(self) -> None:
        while (message := self._queue.get()) is not None:
            cast(Router, self._task.router).supervisor.pass_made(0)  # a sign of life
            with self._lock:
                for t in range(len(message["reward"])):
                    add_step(self._buffer, take_rows(message, t))

    def _exchange(self, priorities: list[tuple[Any, Any, Any]], count: int) -> dict[str, Any]:
        buffer = self._buffer
        for one in priorities:
            buffer.update_priorities(*one)
        batch: Batch | None = None
        if count and len(buffer):
            batch = sample_batch(buffer, count, self._rng)
            batch.pop("weight", None)
            batch["mass"] = buffer.masses(batch["index"])
        return {"batch": batch, "mass": buffer.mass if len(buffer) else 0.0, "rows": len(buffer)}

    def _save(self, folder: str) -> dict[str, Any]:
        return self._buffer.save_chunks(Path(folder))

    def _load(self, folder: str, manifest: dict[str, Any]) -> tuple[int, float]:
        try:
            self._buffer.load(Path(folder), manifest)
        except (OperantError, OSError) as error:
            raise RuntimeError(f"this shard's part of replay cannot be read here: {error}") from error
        return len(self._buffer), self._buffer.mass
