-- Drop the marks of ctx.once(): effects elsewhere may be repeated. Let the tasks that use it end first.
DROP TABLE windlass_once;
