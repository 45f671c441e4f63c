"""The rows that README and the pages show, measured on this machine."""
