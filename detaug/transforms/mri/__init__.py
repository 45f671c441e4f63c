"""Artefacts of MRI. They import `detaug.transforms.building` and kernels alone, as transforms of
your own may.
"""
