"""Checkpoints of RLlib: folders that hold pickles, so each is signed, and only this user's own are opened."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from operant._util.files import write_file
from operant._util.signing import is_signed, sign
from operant.errors import UsageError
from operant.harness.tree import Plan, given
from operant.training.trust import Untrusted

_SIGNED = "operant.json"


class Checkpoints:
    """Every so many iterations, and at the end; the newest are kept."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        settings = given(plan, "checkpoint")
        self.every = int(settings.get("checkpoint_frequency", 20))
        self.keep = settings.get("num_to_keep")
        self.folder = folder

    def after(self, algorithm: Any, iteration: int, *, last: bool) -> Path | None:
        """The folder, where one was written."""
        if not self.every or not (last or iteration % self.every == 0):
            return None
        target = self.folder / f"iteration-{iteration:09d}"
        draft = self.folder / f".draft-{iteration:09d}"
        shutil.rmtree(draft, ignore_errors=True)
        algorithm.save_to_path(str(draft.resolve()))
        files = _checksums(draft)
        write_file(draft / _SIGNED, json.dumps({"files": files, "signature": sign({"files": files})}), sync=True)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        if self.keep is not None:
            for old in sorted(self.folder.glob("iteration-*"))[: -self.keep]:
                shutil.rmtree(old)
        return target


def find_checkpoint(path: str, *, trust: bool) -> Path:
    """The folder of a checkpoint, or the newest one below it, if what is in it may be loaded."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise UsageError(f"algo.checkpoint_path: there is no folder {path}")
    if not (folder / "rllib_checkpoint.json").is_file():
        found = sorted(folder.glob("**/iteration-*/rllib_checkpoint.json"))
        if not found:
            raise UsageError(f"algo.checkpoint_path: {path} holds no checkpoint of RLlib")
        folder = found[-1].parent
    if not trust and not _is_own(folder):
        raise Untrusted(
            f"the checkpoint {folder} holds pickles, which run code when they are read, and was not written by you on "
            "this machine, or was changed; if you know where it is from: --trust (algo.trust=true)"
        )
    return folder


def _is_own(folder: Path) -> bool:
    try:
        said = json.loads((folder / _SIGNED).read_text(encoding="utf-8"))
        files = {str(name): str(checksum) for name, checksum in said["files"].items()}
        signature = said["signature"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return is_signed({"files": files}, signature) and files == _checksums(folder)


def _checksums(folder: Path) -> dict[str, str]:
    paths = sorted(one for one in folder.rglob("*") if one.is_file() and one.name != _SIGNED)
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in paths}


def greedy(checkpoint: Path) -> Callable[[Any, Any, str], Any]:
    """What the saved modules do without exploring: an action for an observation, the space of actions, and a policy."""
    import torch
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.rl_module import RLModule
    from ray.rllib.utils.spaces.space_utils import unsquash_action

    saved = checkpoint / "learner_group" / "learner" / "rl_module"
    modules: dict[str, Any] = {}

    def act(obs: Any, space: Any, policy: str) -> Any:
        if policy not in modules:
            modules[policy] = RLModule.from_checkpoint(str(saved / policy))
        module, seen = modules[policy], np.asarray(obs, np.float32)[None]
        if module.observation_space.shape != seen.shape[1:]:  # a connector has made it flat
            seen = seen.reshape(1, -1)
        with torch.no_grad():
            out = module.forward_inference({Columns.OBS: torch.as_tensor(seen)})
        if Columns.ACTIONS in out:
            action = out[Columns.ACTIONS]
        else:
            kind = module.get_inference_action_dist_cls()
            action = kind.from_logits(out[Columns.ACTION_DIST_INPUTS]).to_deterministic().sample()
        chosen = action[0].numpy()
        return int(chosen) if chosen.ndim == 0 else unsquash_action(chosen, space)  # type: ignore[no-untyped-call]

    return act
