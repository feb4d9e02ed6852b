"""The command `halfmask`: one thin file per command."""
