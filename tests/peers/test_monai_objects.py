"""MONAI's tensors, where the engine meets them."""

from __future__ import annotations

import pytest
import torch

from detaug.transport.transfer import pack
from tests.unit.engine.test_transfer import through


def test_a_meta_tensor_of_monai():
    monai = pytest.importorskip("monai.data", reason="MONAI is not installed")
    batch = monai.MetaTensor(
        torch.arange(40_000.0).reshape(1, 200, 200), affine=torch.diag(torch.tensor([2.0, 3, 1, 1]))
    )
    batch.meta["filename"] = "case_1.nii.gz"
    batch.applied_operations.append({"class": "Flip"})
    packed = pack({"image": batch})
    assert sum(buffer.nbytes for buffer in packed.buffers) == 160_000
    back = through({"image": batch})["image"]
    assert type(back) is monai.MetaTensor
    assert torch.equal(back.as_tensor(), batch.as_tensor())
    assert torch.equal(back.affine, batch.affine)
    assert back.meta["filename"] == "case_1.nii.gz"
    assert back.applied_operations == [{"class": "Flip"}]
    assert back.is_batch == batch.is_batch
