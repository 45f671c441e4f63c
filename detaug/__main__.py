"""`python -m detaug`: the command line, if the script `detaug` is not on the PATH."""

from detaug.tools.cli import main

if __name__ == "__main__":
    main(prog_name="detaug")
