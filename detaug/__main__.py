"""`python -m detaug`: the command line, where no script `detaug` is on the PATH."""

from detaug.tools.cli import main

if __name__ == "__main__":
    main(prog_name="detaug")
