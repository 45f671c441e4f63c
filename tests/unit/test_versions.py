"""The digest of the package's source code, which identifies the code that made a batch."""

from __future__ import annotations

import re
import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from detaug import versions


def digest_of(package: Path) -> str:
    """Return the digest that a copy of the package computes of its own source code."""
    spec = spec_from_file_location("versions_of_a_copy", package / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.source_digest())


def test_the_digest_is_the_codes_and_changes_with_any_file(tmp_path: Path) -> None:
    package = tmp_path / "detaug"
    source = Path(versions.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert re.fullmatch(r"[0-9a-f]{12}", versions.source_digest())
    assert digest_of(package) == versions.source_digest(), "where the package lies does not matter"
    changed = package / "seeding" / "tree.py"
    changed.write_text(changed.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert digest_of(package) != versions.source_digest()
    changed.rename(package / "seeding" / "other.py")
    assert digest_of(package) != versions.source_digest()
