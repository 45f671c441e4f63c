"""The words in which commands say what a comparison found, and the colours that they have on a terminal."""

EQUAL, DIFFERENT, REPAIRED = "equal", "different", "differs; detaug repairs it"
NOT_RUN, FAILED, REFERENCE = "not run", "failed", "reference"

STYLES = {EQUAL: "green", DIFFERENT: "bold red", FAILED: "bold red"}
