"""`detaug.preview`: samples on their way through a pipeline, as a contact sheet."""

from detaug.tools.previews.preview import preview
from detaug.tools.previews.result import Preview

__all__ = ["Preview", "preview"]
