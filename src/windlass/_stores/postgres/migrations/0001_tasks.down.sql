-- Drop everything, including tasks. The schema stays, as it may contain the application's own tables.
DROP TABLE windlass.lead;
DROP TABLE windlass.audit;
DROP TABLE windlass.queue;
DROP TABLE windlass.listener;
DROP TABLE windlass.session;
DROP TABLE windlass.attempt;
DROP TABLE windlass.dependency;
DROP TABLE windlass.idempotency;
DROP TABLE windlass.history;
DROP TABLE windlass.task;
