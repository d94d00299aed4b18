"""`python -m palyra` is the command `palyra`."""

from palyra.cli.main import main

main()
