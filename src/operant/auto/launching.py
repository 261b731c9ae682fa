"""From a checked config to a trained agent: the Lightning Trainer with what it needs."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from operant._util.dotted import plain_flat
from operant.auto.config import LaunchSettings, Plan, plain_config, write_config
from operant.auto.learners import Learner
from operant.auto.logger import OperantLogger
from operant.auto.module import TaskModule
from operant.auto.parts import Parts
from operant.auto.saving import KEY, AtomicCheckpointIO, SaveOnSignal, Stopped, load_checkpoint_file, unpack
from operant.errors import UsageError
from operant.tracking import Run, SummaryWriter
from operant.training.arithmetic import quick_arithmetic
from operant.training.evaluating import Evaluation
from operant.training.training import Observer, Silent

MakeLearner = Callable[[SummaryWriter, Path, Observer], Learner]


@dataclass(frozen=True)
class LaunchOptions:
    """How to launch, beside what the config says."""

    resume: bool | str | Path = False
    """True: go on from ``model/last.ckpt`` in root_dir; or the checkpoint file to go on from."""
    root: str | Path | None = None
    """The ``.operant`` folder of the run."""
    progress: bool = False
    """Show Lightning's progress bar."""
    say: Callable[[str], None] | None = None
    """Who is told how it goes, line by line."""


# Set by `launch`, so that the `launch` of an environment extension needs to know nothing of them.
_options: ContextVar[LaunchOptions] = ContextVar("launch_options")


@contextmanager
def using(options: LaunchOptions) -> Iterator[None]:
    """Launch with these options inside the block."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


@dataclass(frozen=True)
class LaunchResult:
    """What came of a launch."""

    best_reward: float
    """The best mean total reward of an evaluation in the test environment."""
    final_reward: float
    """That of the last evaluation."""
    checkpoint: Path | None
    """The checkpoint of the best one."""
    last_checkpoint: Path | None
    run_id: str
    root_dir: Path
    epochs: int
    episodes: int
    steps: int
    seconds: float
    stopped_early: bool
    exact: bool
    rewards: tuple[float, ...] = ()
    """The mean total reward after each epoch."""

    def to_mapping(self) -> dict[str, Any]:
        plain = {**vars(self), "rewards": list(self.rewards), "root_dir": str(self.root_dir)}
        for key in ("checkpoint", "last_checkpoint"):
            plain[key] = None if plain[key] is None else str(plain[key])
        return plain


class Spoken:
    """Tells what a training says to whoever listens."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def said(self, sentence: str) -> None:
        self._say(sentence)

    def point(self, step: int, steps_per_second: float, mean_return: float) -> None: ...
    def evaluated(self, step: int, evaluation: Evaluation, best: bool) -> None: ...


def run_learner(
    plan: Plan,
    parts: Parts,
    config: Mapping[str, Any],
    make: MakeLearner,
    callbacks: list[Callback] | None,
) -> LaunchResult:
    """Train what `make` makes, in root_dir, as a run."""
    launch, options = plan.launch, _options.get(LaunchOptions())
    folder, checkpoint = _places(Path(launch.root_dir), options.resume)
    spoken = Spoken(options.say) if options.say is not None else Silent()
    if folder != Path(launch.root_dir):
        spoken.said(f"{launch.root_dir} holds a training already; this one is kept in {folder}")
    name = launch.name or f"{_env_label(launch)}-{plan.algorithm}".lower()
    with _writer(name, config, checkpoint, options.root) as writer:
        writer.add_text("log", f"kept in {folder.absolute()}", 0)
        write_config(config, folder / "config" / "config.json")
        _say_device(parts, writer, spoken)
        learner = make(writer, folder, spoken)
        try:
            if parts.visualize:
                if learner.network is None:
                    raise UsageError("frame_config.visualize is true, but the algorithm has no network to draw")
                write_graph(learner.network, Path(parts.visualize_dir or folder / "log" / "graphs"), writer)
            with learner.connected() as router:
                return _fit(plan, learner, writer, folder, checkpoint, callbacks, options, spoken, router)
        finally:
            learner.close()


def _fit(
    plan: Plan,
    learner: Learner,
    writer: SummaryWriter,
    folder: Path,
    checkpoint: Path | None,
    callbacks: list[Callback] | None,
    options: LaunchOptions,
    spoken: Observer,
    router: Any,
) -> LaunchResult:
    launch = plan.launch
    module = TaskModule(learner, writer, plan.episode_per_epoch, launch.max_episodes, router)
    if hasattr(learner, "module"):
        learner.module = module
    # Two of them: `save_last=True` would write the last one only when it is the best as well.
    always: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
    best = ModelCheckpoint(folder / "model", "best", monitor="total_reward", mode="max", **always)
    last = ModelCheckpoint(folder / "model", "last", **always)
    stopper = EarlyStopping(
        "total_reward",
        mode="max",
        patience=launch.early_stopping_patience or plan.epochs + 1,
        stopping_threshold=launch.stop_reward,
        check_on_train_epoch_end=True,
    )

    def evaluated(epoch: int, reward: float, is_best: bool) -> None:
        spoken.said(
            f"epoch {epoch:>3}  episodes {learner.episodes:>5,}  steps {learner.env_step:>7,}  training "
            f"{learner.training_reward:>7.2f}  total reward {reward:>7.2f}{' best' if is_best else ''}"
        )

    module.evaluated = evaluated
    saver = SaveOnSignal(folder)
    with _quiet():
        trainer = Trainer(
            **_accelerator(module),
            plugins=[_one_process(), AtomicCheckpointIO()],
            logger=OperantLogger(writer=writer),
            callbacks=[best, last, stopper, *(callbacks or []), saver],
            max_epochs=plan.epochs,
            default_root_dir=str(folder),
            enable_progress_bar=options.progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        began = time.perf_counter()
        if checkpoint is None:
            learner.begin()
        with quick_arithmetic(), module.task:
            try:
                trainer.fit(module, ckpt_path=None if checkpoint is None else str(checkpoint), weights_only=True)
            except Stopped:
                saver.interrupts.end(saver.say(writer, learner.env_step, options.root))
        seconds = time.perf_counter() - began
    rewards = tuple(module.rewards)
    stopped = _why_stopped(launch, stopper, rewards)
    if stopped:
        writer.add_text("log", stopped, learner.env_step)
        spoken.said(stopped)
    return LaunchResult(
        best_reward=max(rewards, default=float("nan")),
        final_reward=rewards[-1] if rewards else float("nan"),
        checkpoint=Path(best.best_model_path) if best.best_model_path else None,
        last_checkpoint=Path(last.best_model_path) if last.best_model_path else None,
        run_id=writer.run_id,
        root_dir=folder,
        epochs=len(rewards),
        episodes=learner.episodes,
        steps=learner.env_step,
        seconds=seconds,
        stopped_early=bool(stopped),
        exact=learner.exact,
        rewards=rewards,
    )


def _why_stopped(launch: LaunchSettings, stopper: EarlyStopping, rewards: tuple[float, ...]) -> str:
    """Why a training ended before its last episode, in words; empty if it did not."""
    if launch.stop_reward is not None and rewards and rewards[-1] >= launch.stop_reward:
        reached = f"total reward {rewards[-1]:.4g} (stop_reward {launch.stop_reward:g})"
        return f"stopped after epoch {len(rewards) - 1}: {reached}"
    if launch.early_stopping_patience is not None and stopper.wait_count >= stopper.patience:
        return (
            f"stopped early after epoch {len(rewards) - 1}: the total reward has not risen above "
            f"{float(stopper.best_score):.4g} for {stopper.wait_count} epochs (early_stopping_patience)"
        )
    return ""


def _places(root_dir: Path, resume: bool | str | Path) -> tuple[Path, Path | None]:
    """The folder to keep everything in, and the checkpoint to go on from."""
    if not isinstance(resume, bool):
        file = Path(resume)
        if not file.is_file():
            raise UsageError(f"there is no checkpoint {file} to resume from")
        return file.absolute().parent.parent, file
    last = root_dir / "model" / "last.ckpt"
    if resume:
        if not last.is_file():
            raise UsageError(f"there is nothing to resume: {last} does not exist")
        return root_dir, last
    folder, number = root_dir, 1
    while (folder / "model").exists() or (folder / "config").exists():
        number += 1
        folder = root_dir.with_name(f"{root_dir.name}-{number}")
    return folder, None


def _writer(name: str, config: Mapping[str, Any], checkpoint: Path | None, root: str | Path | None) -> SummaryWriter:
    """A new run; or the one that the checkpoint is of, if it is still there."""
    settings = plain_flat(plain_config(config))
    if checkpoint is not None:
        loaded = load_checkpoint_file(checkpoint)
        unpack(loaded, str(checkpoint))
        run_id, step = str(loaded[KEY]["run"]), int(loaded[KEY]["step"])
        try:
            Run.open(run_id, root)
        except UsageError:
            writer = SummaryWriter(name, root=root, config=settings, tags=["auto"])
            writer.add_text("log", f"resumed from {checkpoint} of the run {run_id}, which is not here", step)
            return writer
        return SummaryWriter(run=run_id, resumed_from=step, root=root)
    return SummaryWriter(name, root=root, config=settings, tags=["auto"])


def _env_label(launch: Any) -> str:
    return str(launch.train_env_config.get("env_name") or launch.env).rpartition(".")[2].rpartition(":")[2]


def _say_device(parts: Parts, writer: SummaryWriter, spoken: Observer) -> None:
    if parts.about_device:
        writer.add_text("log", parts.about_device, 0)
        spoken.said(parts.about_device)


def _accelerator(module: TaskModule) -> dict[str, Any]:
    """Lightning's words for where a module lies: it would move it elsewhere if it were not told."""
    device = next((one.device for one in module.parameters()), torch.device("cpu"))
    return {"accelerator": device.type, "devices": [device.index or 0] if device.type == "cuda" else 1}


def _one_process() -> LightningEnvironment:
    """A task of Slurm's is one training as anywhere else: Lightning is told so, it does not read the variables."""
    environment = LightningEnvironment()
    environment.set_global_rank(
        0
    )  # Lightning took SLURM_PROCID for the rank when it was imported; others record nothing
    return environment


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's advertisements and the warnings that concern only its own code out of the user's sight."""
    lightning = logging.getLogger("lightning.pytorch")
    before = lightning.level
    lightning.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*LeafSpec", FutureWarning)  # Lightning 2.6 with torch 2.13
            warnings.filterwarnings("ignore", r"Checkpoint directory .* exists and is not empty", UserWarning)
            # Networks are in training mode in updates alone, and the algorithm sees to that.
            warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode", UserWarning)
            warnings.filterwarnings("ignore", r"The `srun` command is available", UserWarning)  # it looks all the same
            yield
    finally:
        lightning.setLevel(before)


def write_graph(network: Any, folder: Path, writer: SummaryWriter) -> Path:
    """Write ``network.dot`` (``dot -Tsvg network.dot`` draws it) and keep it with the run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "network.dot"
    path.write_text(graph_of(network), encoding="utf-8")
    writer.add_file(path)
    return path


def graph_of(network: torch.nn.Module) -> str:
    """Modules with their shapes, each linked to those inside it and parameters to their module."""
    lines = ["digraph network {", '  rankdir="LR";', "  node [shape=box, fontname=Helvetica];"]
    for name, module in network.named_modules():
        own = sum(one.numel() for one in module.parameters(recurse=False))
        detail = module.extra_repr()
        label = "\\n".join(part for part in (name or "network", type(module).__name__, detail) if part)
        count = f"\\n{own:,} parameters" if own else ""
        lines.append(f'  "{name}" [label="{_escaped(label)}{count}"];')
        if name:
            lines.append(f'  "{name.rpartition(".")[0]}" -> "{name}";')
    return "\n".join([*lines, "}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace('"', "'")
