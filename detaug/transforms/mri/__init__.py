"""Artefacts of MRI.

Its files import `detaug.transforms.building` and kernels alone, as transforms of your own may.
"""
