"""Middleware that carry weights and trajectories between workers."""

from __future__ import annotations

from typing import Any

from operant.framework import Context, QueueClosed, Task
from operant.training.middleware.learning import tell_steps


def model_sender(task: Task, policy: Any) -> Any:
    """Show the weights to the other workers at the end of each pass.

    Reads ``ctx.train_iter``. Writes ``ctx.state_dict`` (only where there are other workers).
    """

    def _model_sender(ctx: Context) -> None:
        if task.router.is_active:
            ctx.state_dict = policy.weights()

    return _model_sender


def model_receiver(task: Task, policy: Any, *, wait: bool = True) -> Any:
    """Take the newest weights that a worker shows; with `wait`, go on only when there are newer ones.

    Reads ``task.parallel_ctx``: ``state_dict``, ``train_iter``, ``env_step``. Writes ``ctx.train_iter`` and
    ``ctx.env_step`` of the worker that learns; kept. Without other workers it does nothing.
    """
    last = -1

    def _model_receiver(ctx: Context) -> None:
        nonlocal last
        if not task.router.is_active:
            return
        view = task.parallel_ctx
        while not ctx.finish:
            iteration = view.get("train_iter", -1)
            if iteration > last and "state_dict" in view:
                policy.load_weights(view["state_dict"])
                ctx.train_iter = last = iteration
                ctx.env_step = view.get("env_step", 0)
                ctx.keep("train_iter", "env_step")
                tell_steps(policy, ctx.env_step)
                return
            if not wait:
                return
            newer = view.wait_newer()
            if newer is None:
                return
            view = newer

    return _model_receiver


def trajectory_sender(task: Task, name: str = "trajectories", maxsize: int = 8) -> Any:
    """Send what was collected to the worker that learns; waits while its queue is full.

    Reads ``ctx.trajectory``. Writes nothing.
    """
    queue = task.queue(name, maxsize)

    def _trajectory_sender(ctx: Context) -> None:
        queue.put(ctx.trajectory)

    return _trajectory_sender


def trajectory_receiver(task: Task, name: str = "trajectories", maxsize: int = 8, timeout: float | None = None) -> Any:
    """Take the next trajectory that a worker sent; waits for it.

    Reads nothing. Writes ``ctx.trajectory`` (an empty list when the senders are done), ``ctx.env_step``, and
    ``ctx.lost``, how many trajectories lay in the queue when an earlier life of its host died; kept.
    """
    queue = task.queue(name, maxsize)

    def _trajectory_receiver(ctx: Context) -> None:
        ctx.setdefault("env_step", 0)
        try:
            ctx.trajectory = queue.get(timeout) or []
        except (QueueClosed, TimeoutError):
            ctx.trajectory = []
        ctx.env_step += sum(len(step["reward"]) for step in ctx.trajectory)
        ctx.lost = queue.lost
        ctx.keep("env_step", "lost")

    return _trajectory_receiver
