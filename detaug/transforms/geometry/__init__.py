"""Maps of space: where the voxels of a patch and points come from."""
