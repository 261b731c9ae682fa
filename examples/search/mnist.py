"""A small training that takes its settings from the command line and a file, and reports as it learns.

It learns to read 8x8 digits (drawn here, so that nothing has to be downloaded) with a softmax regression:
small enough for a second, real enough that its settings matter.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import yaml

from operant import SummaryWriter

GLYPHS = [
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111", "11110 00001 00001 01110 00001 00001 11110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
]  # fmt: skip


def draw_digits(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of digits at random places, with noise, and which digits they are."""
    glyphs = [np.array([[int(dot) for dot in row] for row in glyph.split()]) for glyph in GLYPHS]
    labels = rng.integers(10, size=count)
    pictures = rng.normal(0.0, 0.35, size=(count, 10, 8))
    for picture, label in zip(pictures, labels, strict=True):
        top, left = rng.integers(0, 3), rng.integers(0, 3)
        picture[top : top + 7, left : left + 5] += glyphs[label]
    return pictures.reshape(count, -1), labels


def accuracy(weights: np.ndarray, pictures: np.ndarray, labels: np.ndarray) -> float:
    return float(((pictures @ weights).argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--log-interval", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--pavi", action="store_true", help="record scalars")
    options = parser.parse_args()
    config = yaml.safe_load(Path(options.config).read_text(encoding="utf-8"))
    rng = np.random.default_rng(int(os.environ.get("OPERANT_SEED", "0")))
    pictures, labels = draw_digits(4000, rng)
    test_pictures, test_labels = draw_digits(1000, rng)
    weights = np.zeros((pictures.shape[1], 10))
    rate = options.lr
    writer = SummaryWriter("MnistNet") if options.pavi else None
    score = 0.0
    for epoch in range(config["epochs"]):
        order = rng.permutation(len(pictures))
        for batch, start in enumerate(range(0, len(order), options.batch_size)):
            chosen = order[start : start + options.batch_size]
            scores = pictures[chosen] @ weights
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            loss = -np.log(chances[np.arange(len(chosen)), labels[chosen]]).mean()
            chances[np.arange(len(chosen)), labels[chosen]] -= 1
            weights -= rate * pictures[chosen].T @ chances / len(chosen)
            if writer is not None and batch % options.log_interval == 0:
                writer.add_scalar("Train Loss", float(loss), epoch * len(order) // options.batch_size + batch)
        score = accuracy(weights, test_pictures, test_labels)
        if writer is not None:
            writer.add_scalar("Test Acc", score, epoch)
        if (epoch + 1) % config["scheduler"]["step_size"] == 0:
            rate *= config["scheduler"]["gamma"]
    print(f"Test Acc {score:.4f}")
    Path("result.json").write_text(json.dumps({"Test Acc": score}), encoding="utf-8")
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    main()
