"""`detaug bench`: a pipeline under detaug and under the augmenters that people have, measured and drawn."""

from detaug.bench.result import Result
from detaug.bench.running import Settings, bench

__all__ = ["Result", "Settings", "bench"]
