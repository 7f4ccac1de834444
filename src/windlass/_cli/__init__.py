"""The command line: a thin shell over Client and Operator."""
