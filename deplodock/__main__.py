"""python -m deplodock: the command line."""
from deplodock.cli import main

main()
