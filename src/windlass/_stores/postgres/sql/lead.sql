-- Take or renew the lead; a row means yes. A lead that lasts longer than any request was granted before the clock
-- was set back.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)

INSERT INTO windlass.lead AS l (single, holder, until)
SELECT 1, $2, clock.now + $3::interval FROM clock
ON CONFLICT (single) DO UPDATE
SET holder = excluded.holder, until = excluded.until
WHERE
    l.holder = excluded.holder
    OR l.until <= coalesce($1::timestamptz, clock_timestamp())
    OR l.until > excluded.until
RETURNING l.holder
