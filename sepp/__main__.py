"""`python -m sepp` is `sepp-trio`."""

from sepp.cli.app import main

if __name__ == "__main__":
    main()
