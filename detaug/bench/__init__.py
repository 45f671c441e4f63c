"""`detaug bench`: a pipeline under detaug, batchgenerators and torch; and how benchmarks
measure.
"""
