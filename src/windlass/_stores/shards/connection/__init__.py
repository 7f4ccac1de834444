"""The shards themselves: their file, their stores, handles on them, and which tasks are where."""
