"""A user's own searchers, assessors and criteria, from files beside the search's YAML."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from operant.errors import ConfigError


def import_custom(files: Any, beside: Path) -> list[ModuleType]:
    """Run these files, so that their classes register themselves."""
    if isinstance(files, dict) and "imports" in files:
        files = files["imports"]
    if isinstance(files, str):
        files = [files]
    if not isinstance(files, Sequence):
        raise ConfigError(f"a list of Python files is expected here, not {files!r}")
    return [_import_one(file, beside, place) for place, file in enumerate(files)]


def _import_one(file: Any, beside: Path, place: int) -> ModuleType:
    if not isinstance(file, str) or not file:
        raise ConfigError(f"a Python file is expected here, not {file!r}", (place,))
    path = beside / (file if file.endswith(".py") else f"{file}.py")
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}", (place,))
    # The name holds the path, so that two folders may each have a custom_searcher.py.
    name = f"operant_custom_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(_common_names())
    sys.modules[name] = module
    # The file may import others that lie beside it.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:
        line = _line_in(error, path)
        raise ConfigError(f"{path}{line}: {type(error).__name__}: {error}", (place,)) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _common_names() -> dict[str, Any]:
    """What such a file may use without importing it: the registries, their bases and small helpers."""
    from operant.assessors import ASSESSORS, AssessResult, BaseAssessor
    from operant.schedulers import criteria
    from operant.searchers import SEARCHERS, BaseSearcher

    return {
        "ASSESSORS": ASSESSORS,
        "AssessResult": AssessResult,
        "BaseAssessor": BaseAssessor,
        "BaseFilterCriterion": criteria.BaseFilterCriterion,
        "BaseSearcher": BaseSearcher,
        "BaseStopCriterion": criteria.BaseStopCriterion,
        "FILTER_CRITERIONS": criteria.FILTER_CRITERIONS,
        "SEARCHERS": SEARCHERS,
        "STOP_CRITERIONS": criteria.STOP_CRITERIONS,
        "get_current_time": criteria.get_current_time,
    }


def _line_in(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f":{line}"
