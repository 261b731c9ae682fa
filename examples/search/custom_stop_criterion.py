"""A stop criterion of one's own: ends the search after a number of steps."""

from operant.schedulers import STOP_CRITERIONS, BaseStopCriterion, get_current_time


@STOP_CRITERIONS.register_module()
class MyStopCriterion(BaseStopCriterion):
    def __init__(self, max_steps=4):
        self.max_steps = max_steps

    def before_run(self, scheduler):
        """Called once, before the first job."""
        self.start_task_time = get_current_time()
        scheduler.step = 0

    def before_iter(self, scheduler):
        """Called before each job; `scheduler.is_stop = True` lets no further one start."""
        if scheduler.step >= self.max_steps:
            scheduler.is_stop = True
        scheduler.step += 1

    def after_run(self, scheduler):
        """Called once, after the last job."""
        print(f"{scheduler.tries} tries in {get_current_time() - self.start_task_time:.1f} s")
