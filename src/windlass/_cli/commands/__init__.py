"""One file for each noun of the command line; imported when it is asked for."""
