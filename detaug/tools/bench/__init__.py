"""`detaug bench`: a pipeline under detaug, batchgenerators and torch, and fair measurements."""
