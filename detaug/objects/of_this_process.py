"""Numbers and texts that are the time, the process, the machine or a cluster's job.

They differ between two correct runs.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from datetime import date
from typing import Any

import numpy as np

#: A time that is this near to the present one (seconds, days) is that of the program.
_NEAR_NOW = 7 * 86_400.0
_NEAR_TODAY = 7
#: Times count seconds, milliseconds, microseconds or nanoseconds since 1970.
_UNITS = (1.0, 1e3, 1e6, 1e9)
_NUMBERS = re.compile(r"\d+")
#: Characters of the shortest name of a job, and digits of the shortest number of a process.
_SHORTEST_JOB = 4
#: Where Linux puts the objects of a 64-bit process.
_ADDRESSES = range(2**46, 2**47)
_DATE = re.compile(r"(20\d\d)[-_./]?([01]\d)[-_./]?([0-3]\d)")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}", re.I)


#: Attributes with the identifier of a run, as logs and experiment trackers have it.
_OF_RUN = re.compile(r"_*(run|session|experiment|exp|job|trial)_?(id|uid|uuid|token)", re.I)


def is_identifier_of_run(attribute: str, value: Any) -> bool:
    """Return whether an attribute holds a text that identifies the run: ``run_id``."""
    return isinstance(value, str) and _OF_RUN.fullmatch(attribute) is not None


def is_of_this_process(value: Any) -> bool:
    """Return whether a number or text is the time, the process or an address."""
    if isinstance(value, (int, float, np.integer, np.floating)):
        return _is_number_of_this_process(value)
    return isinstance(value, str) and _is_text_of_this_process(value)


def _is_number_of_this_process(number: Any) -> bool:
    """Return whether a number is this process's, a time, or an address."""
    # Only the current ids can be recognised; an earlier process's id looks like a setting.
    if number in (os.getpid(), os.getppid(), threading.get_ident()):
        return True
    if not 1e9 < number < 1e19:
        # It is no time since 2001.
        return False
    if isinstance(number, (int, np.integer)) and int(number) in _ADDRESSES:
        return True
    now = time.time()
    return any(abs(number / unit - now) < _NEAR_NOW for unit in _UNITS)


def _is_text_of_this_process(text: str) -> bool:
    """Return whether a text has today's date in it, or is a random identifier."""
    if len(text) > 200:
        return False
    if _UUID.fullmatch(text):
        return True
    match = _DATE.search(text)
    if match is None:
        return False
    year, month, day_of_month = match.groups()
    try:
        day = date(int(year), int(month), int(day_of_month))
    except ValueError:
        return False
    return abs((date.today() - day).days) <= _NEAR_TODAY


def names_the_job(text: str) -> bool:
    """Return whether a value's text names the machine or the job, or has the process's number.

    As in ``"run_31415"``; a number of few digits may as well be that of a case.
    """
    process = str(os.getpid())
    if len(process) >= _SHORTEST_JOB and process in _NUMBERS.findall(text):
        return True
    names = {socket.gethostname()}
    for variable, value in os.environ.items():
        # SLURM_JOB_ID, PBS_JOBNAME, LSB_JOBID; a shorter value is more likely a setting's.
        if "JOB" in variable and len(value) >= _SHORTEST_JOB:
            names.add(value)
    return text.strip("'") in names
