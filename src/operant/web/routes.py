"""Every address of the page's server, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from operant.web import blobs, charts, compares, jobs_api, metrics, runs_api, searches_api
from operant.web.answers import ApiRequest, endpoint
from operant.web.app_state import AppState
from operant.web.pages import page_routes
from operant.web.streams import Hub

Function = Callable[[AppState, ApiRequest], Any]

API: tuple[tuple[str, str, Function], ...] = (
    ("GET", "/metrics", metrics.metrics),
    ("GET", "/api/overview", runs_api.overview),
    ("GET", "/api/searches", searches_api.every),
    ("GET", "/api/searches/{name}", searches_api.describe),
    ("GET", "/api/searches/{name}/intermediate", searches_api.intermediate),
    ("GET", "/api/searches/{name}/scalars", searches_api.scalars),
    ("GET", "/api/searches/{name}/importance", searches_api.importance),
    ("GET", "/api/searches/{name}/slices", searches_api.slices),
    ("GET", "/api/searches/{name}/contour", searches_api.contour),
    ("GET", "/api/searches/{name}/tree", searches_api.tree),
    ("GET", "/api/searches/{name}/log", searches_api.log),
    ("POST", "/api/searches/{name}/stop", searches_api.stop),
    ("POST", "/api/searches/{name}/pause", searches_api.pause),
    ("POST", "/api/searches/{name}/resume", searches_api.resume),
    ("POST", "/api/searches/{name}/note", searches_api.add_note),
    ("POST", "/api/searches/{name}/tags", searches_api.edit_tags),
    ("POST", "/api/searches/{name}/jobs/{job}/stop", searches_api.stop_job),
    ("GET", "/api/runs", runs_api.every),
    ("POST", "/api/runs/rows", runs_api.rows_of),
    ("GET", "/api/run", runs_api.describe),
    ("GET", "/api/run/blob", blobs.blob),
    ("GET", "/api/run/console", jobs_api.console),
    ("GET", "/api/run/console/find", jobs_api.find),
    ("GET", "/api/run/output", jobs_api.output),
    ("POST", "/api/run/note", runs_api.add_note),
    ("POST", "/api/run/tags", runs_api.edit_tags),
    ("POST", "/api/run/stop", runs_api.stop),
    ("POST", "/api/charts", charts.charts),
    ("GET", "/api/scores", compares.scores),
    ("GET", "/api/scores/picture", compares.score_picture),
    ("GET", "/api/compares", compares.every),
    ("POST", "/api/compares", compares.create),
    ("GET", "/api/compares/{id}", compares.describe),
    ("POST", "/api/compares/{id}/add", compares.add),
)


def api_routes(app: AppState, hub: Hub) -> list[Route]:
    async def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [Route(path, endpoint(app, function), methods=[method]) for method, path, function in API]
    own = [Route("/healthz", healthz, methods=["GET"]), Route("/api/events", hub.events, methods=["GET"])]
    return [*own, *routes, *page_routes()]
