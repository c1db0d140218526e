"""The command line: `campana --help` says what there is."""

from campana.cli.main import main

__all__ = ["main"]
