"""Drawing: planes of volumes with outlines of labels, and charts.

Nothing here knows of transforms or pipelines. It needs matplotlib (``pip install
'detaug[plots]'``), which is imported when something is drawn.
"""
