"""`python op_hurried.py`: the operator, its long waits divided by HEADRACE_HURRY, and else unchanged."""

import os

from headrace_operator import __main__
from headrace_operator.kube import client as cluster
from headrace_operator.kube import handlers
from headrace_operator.run import upgrade, workers, workqueue

FACTOR = float(os.environ["HEADRACE_HURRY"])

workers._RESYNC /= FACTOR
workers._RESYNC_AGAIN /= FACTOR
workqueue._LAST_RETRY /= FACTOR
__main__._RETRY_SECONDS /= FACTOR
cluster._TIMEOUT /= FACTOR
handlers._LONGEST_PAUSE /= FACTOR
upgrade._OVERLAP = 0.0  # whatever the factor: what waits ten minutes would end no test
configure = handlers.configure_kopf


def hurried(settings):
    configure(settings)
    settings.watching.inactivity_timeout /= FACTOR
    settings.networking.request_timeout /= FACTOR


if __name__ == "__main__":
    handlers.configure_kopf = hurried
    __main__.main()
