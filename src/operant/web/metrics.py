"""`/metrics`: what goes on, in the text format that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.responses import Response

from operant._util.prometheus import CONTENT_TYPE, render
from operant.schedulers.views.metrics import about_searches
from operant.tracking.reading.metrics import about_process, about_table
from operant.web.answers import ApiRequest, NotFound
from operant.web.app_state import LOOK_SECONDS, AppState

if TYPE_CHECKING:
    from operant.schedulers.views.live import LiveSearch


def metrics(app: AppState, request: ApiRequest) -> Response:
    app.table.refresh(LOOK_SECONDS)
    found = [*about_process(app.root), *about_searches(_searches(app)), *about_table(app.table, app.rates)]
    return Response(render(found), media_type=CONTENT_TYPE)


def _searches(app: AppState) -> Iterator[LiveSearch]:
    """Each search, held while it is looked at."""
    for name in app.searches.names():
        try:
            search, lock = app.searches.open(name)
        except NotFound:
            continue
        with lock:
            yield search
