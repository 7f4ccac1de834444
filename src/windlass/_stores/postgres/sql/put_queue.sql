-- Keep a queue's settings in place of those before. Stripes that have ever been filled are looked into.
INSERT INTO windlass.queue AS q (name, paused, stripes, widest, settings)
VALUES ($1, $2, $3, $3, $4)
ON CONFLICT (name) DO UPDATE
SET
    paused = excluded.paused,
    stripes = excluded.stripes,
    widest = greatest(q.widest, excluded.widest),
    settings = excluded.settings
