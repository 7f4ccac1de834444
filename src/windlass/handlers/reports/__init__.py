"""generate_report: a PDF of what the queue did in a period, or of rows of your own."""
