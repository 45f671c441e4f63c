"""`detaug.preview`: samples on their way through a pipeline, as a contact sheet."""

from detaug.previews.previewing import preview
from detaug.previews.result import Preview

__all__ = ["Preview", "preview"]
