"""What is masked: secret fields by name, their values in all texts of the task, and matches of patterns.

    fields     which fields are secret: declared, or by a name that suggests it
    values     their values, and where texts and results repeat them
    quoted     the same in text that is quoted, however often
    places     where a document has them, by names and by values
    patterns   regular expressions of an app, each with bounded steps
    mask       all three together, for one task: a `Mask`
    shown      tasks, attempts, schedules and other records as they are shown
    encrypted  how encrypted values are marked and shown

Nothing else decides what is secret: whoever shows or stores a text about a task gets a `Mask` from here.
"""
