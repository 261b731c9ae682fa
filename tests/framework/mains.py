"""The functions that parallel tests run in their workers; workers import them from here."""

from __future__ import annotations

from typing import Any

from operant.framework import Context, Task


def return_node_id(factor: int = 1) -> int:
    with Task() as task:
        assert task.router.is_active and task.router.node_id is not None
        return task.router.node_id * factor


def train_and_evaluate(n_steps: int) -> dict[str, Any]:
    """The last step of the document: evaluate in another process, on the values of train."""
    import numpy as np

    evaluated: list[tuple[int, float]] = []
    saved: list[int] = []
    with Task() as task:

        def evaluate(ctx: Context) -> None:
            last = evaluated[-1][0] if evaluated else -1
            if task.router.is_active:
                view = task.parallel_ctx
                while not ctx.finish:
                    if view.get("state_dict") is not None and view.get("train_iter") > last:
                        break
                    view = view.wait_newer(timeout=30) or view
                if ctx.finish:
                    return
                state, train_iter = view.state_dict, view.train_iter
            else:
                state, train_iter = ctx.state_dict, ctx.train_iter
            assert (state["w"] == train_iter).all()
            evaluated.append((train_iter, float(state["w"][0])))
            if train_iter >= n_steps:
                ctx.finish = True

        def train(ctx: Context) -> None:
            ctx.setdefault("train_iter", 0)
            ctx.train_iter += 1
            ctx.keep("train_iter")
            ctx.state_dict = {"w": np.full(100_000, ctx.train_iter, dtype=np.float64)}
            if ctx.finish:
                saved.append(ctx.train_iter)

        task.use(train, filter_labels=["standalone", "node.0"])
        task.use(evaluate, filter_labels=["standalone", "node.1"])
        task.run()
    return {"evaluated": evaluated, "saved": saved}
