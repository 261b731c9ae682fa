from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.framework import Context


def test_attribute_and_key_are_one() -> None:
    ctx = Context()
    ctx.envstep = 3
    assert ctx["envstep"] == 3
    ctx["train_iter"] = 4
    assert ctx.train_iter == 4
    del ctx.train_iter
    assert "train_iter" not in ctx


def test_setdefault_leaves_what_is_there() -> None:
    ctx = Context()
    assert ctx.setdefault("train_iter", -1) == -1
    ctx.train_iter = 5
    assert ctx.setdefault("train_iter", -1) == 5


def test_missing_attribute_names_what_there_is() -> None:
    ctx = Context(envstep=1)
    with pytest.raises(AttributeError, match=r"no 'train_iter' in this pass \(it has: envstep, finish, total_step\)"):
        _ = ctx.train_iter


def test_a_method_cannot_be_hidden_by_a_value() -> None:
    ctx = Context()
    with pytest.raises(AttributeError, match="method"):
        ctx.items = 3
    ctx["items"] = 3
    assert ctx["items"] == 3 and ("items", 3) in ctx.items()


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 5))
def test_keep_lasts_until_dropped(n_kept: int, n_after: int) -> None:
    ctx = Context()
    ctx.train_iter = 7
    ctx.other = 1
    ctx.keep("train_iter")
    for _ in range(n_kept):
        ctx = ctx.renew()
        assert ctx.train_iter == 7 and "other" not in ctx
    ctx.drop("train_iter")
    ctx = ctx.renew()
    for _ in range(n_after):
        ctx = ctx.renew()
    assert "train_iter" not in ctx
    assert ctx.total_step == n_kept + 1 + n_after


def test_finish_goes_one_way_and_is_told() -> None:
    told = []
    ctx = Context()
    ctx._watch_finish(lambda: told.append(True))
    ctx.finish = False
    assert not ctx.finish and not told
    ctx.update(finish=True)
    ctx.finish = False
    assert ctx.finish and ctx.renew().finish and told


def test_copies_and_pickles_keep_values_and_kept_names() -> None:
    ctx = Context(a=[1])
    ctx.keep("a")
    for other in (copy.copy(ctx), copy.deepcopy(ctx), pickle.loads(pickle.dumps(ctx))):
        assert other == ctx and other.renew().a == [1]


def test_an_old_ctx_is_freed_without_the_garbage_collector() -> None:
    class Big:
        pass

    gc.disable()
    try:
        ctx = Context()
        ctx.data = Big()
        gone = weakref.ref(ctx.data)
        ctx = ctx.renew()
        assert gone() is None
    finally:
        gc.enable()
