"""The command line, `detaug`.

A file here has the arguments and the exit status of a few commands. What is found, and mostly how
it is put into words, is in the room that finds it: `detaug.ledger.comparing`,
`detaug.verification.result`, `detaug.tools.bench.run` ... These files import nothing heavy before
their command runs, so that ``detaug --help`` answers at once.
"""

from __future__ import annotations

import click

from detaug.tools.cli.ledgers import diff
from detaug.tools.cli.machine import print_version, warmup
from detaug.tools.cli.nnunet import nnunet
from detaug.tools.cli.options import Commands
from detaug.tools.cli.pipelines import bench, demo, preview, verify


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=print_version,
    help="Print the version and exit.",
)
@click.option(
    "--verbose",
    is_flag=True,
    # Before --version, wherever it stands on the line: that one asks for it.
    is_eager=True,
    help="With --version: also what results on this machine depend on, with advice.",
)
def main(verbose: bool) -> None:
    """Give a training the same batches for the same seed, and prove that it gets them."""


for _command in (
    bench,
    demo,
    diff,
    nnunet,
    preview,
    verify,
    warmup,
):
    main.add_command(_command)
