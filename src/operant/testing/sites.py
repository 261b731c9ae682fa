"""What every site must do, as tests: subclass `SiteContract` and say how to build yours and what its jobs do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operant.sites import Event, Site, Submission, make_token


class SiteContract:
    """Subclass, override `build` and `job`, and pytest runs all of it."""

    can_cancel = True
    """Whether it can end a job that does not end by itself."""
    patience = 60.0
    """Seconds after which an event that has not come is missing."""

    def build(self, folder: Path) -> Site:
        """A site for jobs whose folders are `folder/jobs/<id>`."""
        raise NotImplementedError("override build() to make your site")

    def job(self, token: str, folder: Path, kind: str) -> Submission:
        """A job that does as `kind` says: "good" ends well, "bad" fails, "endless" goes on until it is ended."""
        raise NotImplementedError("override job() to say what a job does")

    def pass_time(self) -> None:
        """Called while an event is waited for; override it where time is simulated."""
        time.sleep(0.005)

    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[Site]:
        self.events: list[Event] = []
        site = self.build(tmp_path)
        site.start(self.events.append)
        yield site
        site.close()

    def submit(self, site: Site, folder: Path, kind: str, name: str = "0") -> str:
        token = make_token(name, 1, "secret")
        (folder / "jobs" / name).mkdir(parents=True, exist_ok=True)
        assert len(site.submit([self.job(token, folder / "jobs" / name, kind)])) == 1
        return token

    def ends(self, token: str) -> list[Event]:
        return [event for event in self.events if event.token == token and event.kind in ("ended", "lost")]

    def wait(self, done: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + self.patience
        while not done():
            assert time.monotonic() < deadline, f"{what} has not come; there were {self.events}"
            self.pass_time()

    def end_of(self, token: str) -> Event:
        self.wait(lambda: self.ends(token), f"the end of {token}")
        return self.ends(token)[0]

    def test_a_good_job_ends_with_code_0(self, site: Site, tmp_path: Path) -> None:
        end = self.end_of(self.submit(site, tmp_path, "good"))
        assert end.kind == "ended" and end.info.get("code") == 0 and end.info.get("reason") is None
        assert end.info["started"] <= end.info["ended"]

    def test_a_bad_job_ends_with_another_code(self, site: Site, tmp_path: Path) -> None:
        end = self.end_of(self.submit(site, tmp_path, "bad"))
        assert end.info.get("code") != 0

    def test_each_job_ends_once_and_starts_before(self, site: Site, tmp_path: Path) -> None:
        tokens = [self.submit(site, tmp_path, "good", str(number)) for number in range(3)]
        for token in tokens:
            self.end_of(token)
        self.pass_time()
        for token in tokens:
            kinds = [event.kind for event in self.events if event.token == token]
            assert len(self.ends(token)) == 1 and kinds[-1] == "ended" and kinds.count("started") <= 1

    def test_a_cancelled_job_still_says_that_it_ended(self, site: Site, tmp_path: Path) -> None:
        if not self.can_cancel:
            pytest.skip("its jobs end by themselves")
        token = self.submit(site, tmp_path, "endless")
        self.wait(lambda: any(one.kind == "started" for one in self.events), "the start")
        site.cancel([token], "not wanted", 0.5)
        assert self.end_of(token).info.get("reason") == "not wanted"

    def test_cancelling_what_has_ended_is_survived(self, site: Site, tmp_path: Path) -> None:
        token = self.submit(site, tmp_path, "good")
        self.end_of(token)
        site.cancel([token, make_token("nobody", 1, "knows")], "too late", 0.5)

    def test_what_was_never_submitted_is_unknown(self, site: Site, tmp_path: Path) -> None:
        token = make_token("never", 1, "submitted")
        assert site.find([token])[token].state == "unknown" and site.find([]) == {}

    def test_what_has_ended_is_found_or_unknown_but_does_not_run(self, site: Site, tmp_path: Path) -> None:
        token = self.submit(site, tmp_path, "good")
        self.end_of(token)
        found = site.find([token])[token]
        assert found.state in ("ended", "unknown")
        assert found.state == "unknown" or found.record["code"] == 0

    def test_it_says_whether_jobs_outlive_their_controller(self, site: Site, tmp_path: Path) -> None:
        assert site.outlives_controller in (True, False)
