-- Drop everything, including tasks.
DROP TABLE windlass_lead;
DROP TABLE windlass_audit;
DROP TABLE windlass_queue;
DROP TABLE windlass_session;
DROP TABLE windlass_attempt;
DROP TABLE windlass_dependency;
DROP TABLE windlass_idempotency;
DROP TABLE windlass_task;
