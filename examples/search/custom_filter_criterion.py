"""A filter criterion of one's own: large batches do not get many epochs."""

from operant.schedulers import FILTER_CRITERIONS, BaseFilterCriterion


@FILTER_CRITERIONS.register_module()
class MyFilterCriterion(BaseFilterCriterion):
    def filter(self, job):
        """True drops the job. `job.arg_dict` is what it would run with:

        {'batch-size': 512, 'config(epochs)': 4, 'config(scheduler.gamma)': 0.5, ...}
        """
        arg_dict = job.arg_dict
        batch_size = arg_dict["batch-size"]
        epochs = arg_dict["config(epochs)"]
        return batch_size >= 512 and epochs >= 4
