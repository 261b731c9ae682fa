"""At the end the best proposals run again on seeds that the search has not seen: were they good, or lucky?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant.schedulers.planning.statistics import mean_interval

if TYPE_CHECKING:
    from operant.schedulers.engine.scheduler import Scheduler

__all__ = ["FinalCheck"]


class FinalCheck:
    """``final_check: {top: 3, seeds: 5}``: three proposals, five held-out seeds each, means with 95 % intervals."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def run(self) -> None:
        scheduler = self.scheduler
        plan = scheduler.plan.seeds
        ranked = sorted(scheduler.ranking, key=lambda one: (-one[0] if scheduler.maximize else one[0], one[1]))
        top = list(dict.fromkeys(number for _, number in ranked))[: plan.check_top]
        # The search is over, but these jobs still have to run: dispatching goes on, proposing does not.
        scheduler.is_stop = True
        jobs = {}
        for number in top:
            for seed in plan.check_seeds:
                job = scheduler.make_job(scheduler.proposals[number], seed, check=True)
                jobs[number, seed] = job
                earlier = scheduler.check_records.get(job.id)
                if earlier is not None:
                    job.attempt, job.status, job.reward = earlier.attempt, earlier.status, earlier.reward
                if job.status != "FINISHED":
                    scheduler.queue(job)
        scheduler.loop()
        for number in top:
            rewards = [jobs[number, seed].reward for seed in plan.check_seeds]
            good = [reward for reward in rewards if reward is not None]
            if not good:
                continue
            centre, low, high = mean_interval(good)
            found = {"number": number, "mean": centre, "low": low, "high": high, "runs": len(good)}
            scheduler.checks[number] = found
            scheduler.journal.append("checked", **found)
        scheduler.commit()
