"""The version, in a file that imports nothing: the command line answers --version without loading the compiler."""
__version__ = "0.1.0"
