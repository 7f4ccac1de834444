-- Insert a new task, whose id is known to be new. Updates every index of the table. Parameters are positional,
-- because batches of tuples are faster than batches of dictionaries.
INSERT INTO windlass_task (/* :new_columns */)
VALUES (/* :new_values */)
