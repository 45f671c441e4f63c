"""Drawing: planes of volumes with outlines of labels, contact sheets, charts, and pages that need nothing but themselves.

Nothing here knows of transforms or pipelines. It needs matplotlib (``pip install 'detaug[plots]'``), which is imported when
something is drawn.
"""
