"""The version numbers that every state dict and record contains.

`SEED_SCHEME` changes when any (seed, name, epoch, step) would get another random stream. `NUMERICS`
changes when the bytes of any kernel or the order of draws change. A state dict with another number
is refused, because a resumed training would silently become another one.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

__version__ = "0.1.0"

SEED_SCHEME = 2
NUMERICS = 5

#: nnU-Net's hooks are not a documented interface: detaug's trainers follow their code in these
#: versions.
SUPPORTED_NNUNET = ("2.8",)


@cache
def source_digest() -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 over the package's Python files.

    Equal digests mean equal code. Records contain the digest in addition to the version, which
    stays the same while a clone of the repository changes. A difference is shown, and nothing is
    refused because of it.
    """
    package = Path(__file__).parent
    paths = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    digest = sha256()
    # Sorted by the name with slashes: the order is then the same on all systems.
    for name in sorted(paths):
        content = paths[name].read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
