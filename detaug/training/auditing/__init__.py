"""`detaug.training.audit`: one training step, run several times from one state and compared.

`runs` repeats and compares, `recording` watches one run, `found_state` puts the model back, `report` is what was found.
"""
