"""`detaug.preview`: what a pipeline does to samples, stage by stage, as a contact sheet."""

from detaug.previews.previewing import preview
from detaug.previews.result import Preview

__all__ = ["Preview", "preview"]
