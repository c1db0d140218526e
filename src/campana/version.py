"""Which Campana this is."""

VERSION = "0.1.0"
