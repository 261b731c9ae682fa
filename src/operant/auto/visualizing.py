"""The graph of a network's computation as a Graphviz file, for `visualize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from operant.tracking import SummaryWriter

__all__ = ["graph_of", "write_graph"]


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
