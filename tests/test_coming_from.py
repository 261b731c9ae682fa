"""docs/coming-from: every import line works, the other systems' with nothing but the package's name changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "coming-from"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
IMPORT = re.compile(r"(?:`|^)((?:from|import) [\w.]+(?: import [\w, ]+)?)(?:`|$)", re.MULTILINE)


def lines() -> dict[str, None]:
    """Each import as Operant's, without repetitions; those of third packages are left out."""
    found = (line for text in PAGES.values() for line in IMPORT.findall(text))
    ours = (re.sub(r"^(from|import) (?:ding|ditk|gml|machin|pavi)\b", r"\1 operant", line) for line in found)
    return dict.fromkeys(line for line in ours if re.match(r"(from|import) operant\b", line))


@pytest.mark.parametrize("line", lines())
def test_an_import_of_the_pages_works(line: str) -> None:
    exec(line, {})


def test_every_page_has_such_lines() -> None:
    assert len(lines()) > 20
    assert [name for name, text in PAGES.items() if not IMPORT.search(text)] == []


@pytest.mark.parametrize(
    "name",
    [
        *("Task", "Parallel", "StepTimer", "get_epsilon_greedy_fn", "serial_pipeline", "parallel_ctx", "filter_labels"),
        *("BaseLearner", "SampleCollector", "BaseSerialEvaluator", "AdvancedReplayBuffer", "SummaryWriter"),
        *("run_scheduler_local", "run_scheduler_k8s", "try_init_root", "quniform", "get_hpo_callable", "task_defined"),
        *("NaiveScheduler", "SlurmJob", "AutolinkJob", "ContainerJob", "MujocoScheduler", "MujocoJob", "AssessResult"),
        *("build_stop_criterion", "build_filter_criterion", "build_assessor", "get_latest_scalar", "MOCK_PAVI"),
        *("generate_env_config", "RLGymDiscActDataset", "RLGymContActDataset", "DatasetResult", "num_processes"),
        *(f"assert_and_get_valid_{part}" for part in ("optimizer", "lr_scheduler", "criterion")),
    ],
)
def test_a_name_of_theirs_is_in_a_table_or_a_list(name: str) -> None:
    rows = [line for text in PAGES.values() for line in text.splitlines() if line[:2] in ("| ", "- ")]
    assert any(re.search(rf"\b{name}\b", row) for row in rows)
