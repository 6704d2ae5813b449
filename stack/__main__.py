"""`python -m stack`, what `./alerts` runs."""

from stack.cli import main

main()
