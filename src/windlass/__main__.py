"""`python -m windlass`: the command line, where its script is not on the PATH."""

from ._cli.main import main

if __name__ == "__main__":
    main()
