"""Makes the pictures of the README from real commands: `python docs/img/make_terminal_pictures.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).parents[2]


def main() -> None:
    console = Console(record=True, width=108, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for seed in ("2", "1"):
            example = REPOSITORY / "examples" / "tracking" / "hill_climb.py"
            subprocess.run([sys.executable, str(example), "--seed", seed], check=True, capture_output=True)
        for words in (["runs"], ["runs", "show", "last"]):
            console.print(Text(f"$ operant {' '.join(words)}", style="bold green"))
            done = subprocess.run([sys.executable, "-m", "operant", *words], check=True, capture_output=True, text=True)
            private = ("folder ", "command ", "host ")
            lines = [line for line in done.stdout.splitlines() if not line.startswith(private)]
            console.print(Text("\n".join(lines) + "\n"))
    svg = console.export_svg(title="operant")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # a picture asks no other host for fonts
    (REPOSITORY / "docs" / "img" / "runs.svg").write_text(svg.replace("Fira Code", "monospace"), encoding="utf-8")


if __name__ == "__main__":
    main()
