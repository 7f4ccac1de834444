"""The keeper: one elected housekeeper for all workers. Losing it changes nothing but who does the chores."""
