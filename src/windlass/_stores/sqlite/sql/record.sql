-- Insert the attempt of a settled lease.
INSERT INTO windlass_attempt (
    task_id, fence, number, worker, claimed_at, finished_at, duration, outcome, error_type, error_message,
    error_traceback, trace, notes
)
VALUES (
    :task_id, :fence, :number, :worker, :claimed_at, :finished_at, :duration, :outcome, :error_type, :error_message,
    :error_traceback, :trace, :notes
)
