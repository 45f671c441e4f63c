"""As tests/unit/test_state_dict_names.py has it, where the classes are made from nnU-Net's."""

from __future__ import annotations

from tests.support.public_names import assert_found_under_their_own_names


def test_public_classes_are_found_under_their_own_names() -> None:
    assert_found_under_their_own_names("detaug.nnunet")
