-- For a settlement without a claim: no rows, with every parameter of a claim mentioned once.
SELECT NULL::bigint AS rank, NULL::uuid AS id, NULL::tid AS ctid
WHERE false AND cardinality($8::text[]) = cardinality($9::smallint[]) + cardinality($12::bigint[])
    + cardinality($13::uuid[])
