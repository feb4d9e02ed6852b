"""What a finished run is used for on files of one's own."""
