"""Programs of the Makefile and the command lines of others. They use only the library of Python."""
