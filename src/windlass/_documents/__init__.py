"""The JSON document of each noun, as the HTTP API and the CLI's `--json` show it.

Field names are those of the model. Instants are ISO 8601 with a time zone, durations are seconds, unknown
values are null.
"""
