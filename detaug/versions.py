"""The version numbers that every state dict and record carries.

`SEED_SCHEME` changes when any (seed, name, epoch, step) would give another random stream;
`NUMERICS` when the bytes of any kernel or the order of draws change. Both are refused when they do
not match, because a resumed training would silently become another one.
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

    Equal digests mean equal code. Records name it beside the version, which stays the same while a
    clone changes; a difference is shown, and never a reason to refuse anything.
    """
    package = Path(__file__).parent
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    digest = sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
