"""An assessor of one's own: a job whose accuracy is below a line after some reports is not worth its time."""

from operant.assessors import ASSESSORS, AssessResult, BaseAssessor


@ASSESSORS.register_module()
class MyAssessor(BaseAssessor):
    def __init__(self, optimize_mode="maximize", start_step=2, line=0.3):
        super().__init__(optimize_mode, start_step)
        self.line = line

    def assess_job(self, trial_job_id, latest_trial_history):
        """Judge a job by its reports: [{'iteration': 0, 'value': 0.9, 'created': 1640238929992}, ...]."""
        if len(latest_trial_history) < self.start_step:
            return AssessResult.Good
        return AssessResult.Good if latest_trial_history[-1]["value"] >= self.line else AssessResult.Bad

    def job_end(self, trial_job_id):
        """Called when a job has finished."""
