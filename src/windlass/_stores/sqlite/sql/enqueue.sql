-- Insert a new task. Keeps every index of the table; the id is known to be new. By position, because
-- batches of tuples are quicker than batches of dictionaries.
INSERT INTO windlass_task (/* :new_columns */)
VALUES (/* :new_values */)
