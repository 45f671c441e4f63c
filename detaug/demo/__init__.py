"""A small labelled MRI data set, a batchgenerators pipeline on it, and the demo that runs both.

Nothing is downloaded: the MNI152 template lies in nilearn's wheel (``pip install 'detaug[demo]'``).
"""

from detaug.demo.loader import MRIPatchLoader, training_transforms
from detaug.demo.mri import Case, load_template

__all__ = ["Case", "MRIPatchLoader", "load_template", "training_transforms"]
