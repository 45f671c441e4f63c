"""`detaug bench`: a pipeline under detaug and under the augmenters that people have; and how all benchmarks measure."""
