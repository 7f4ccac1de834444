-- Find the first ready tasks of some types in places of a queue. ARGV: prefix, queue, the number of types, the types,
-- then for each place: its name, how many of its tasks to pass over, and how many to look at.
-- Returns for each place how many tasks it looked at, and ids and ranks of those of these types.
@steady
@bulk
@row
@types
local prefix, ready, types = ARGV[1], ARGV[1] .. 'r:' .. ARGV[2] .. '\31', tonumber(ARGV[3])
local keep, found = sieve(prefix, {unpack(ARGV, 4, 3 + types)}), {}
for at = 4 + types, #ARGV, 3 do
    local first = tonumber(ARGV[at + 1])
    local ranked = redis.call('ZRANGE', ready .. ARGV[at], first, first + tonumber(ARGV[at + 2]) - 1, 'WITHSCORES')
    found[#found + 1] = #ranked / 2
    found[#found + 1] = keep(ranked)
end
return found
