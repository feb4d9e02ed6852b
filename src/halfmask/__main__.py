"""`python -m halfmask` is the command `halfmask`, for where it is not on the path."""

from halfmask.cli.app import main

if __name__ == "__main__":
    main()
