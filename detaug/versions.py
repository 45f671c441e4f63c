"""The version numbers that every state dict and record carries.

`SEED_SCHEME` changes when any (seed, name, epoch, step) would give another random stream; `NUMERICS` when the bytes of
any kernel or the order of draws change. Both are refused when they do not match, because a resumed training would
silently become another one.
"""

__version__ = "0.1.0"

SEED_SCHEME = 2
NUMERICS = 5

#: nnU-Net's hooks are not a documented interface: detaug's trainers follow their code in these versions.
SUPPORTED_NNUNET = ("2.8",)
