-- Renew or open a session, and store progress. ARGV: now, prefix, session, whether to open it, the worker's name and
-- description, the lease in microseconds, the highest claim number that has arrived, the number of held leases, each
-- id and fence, the number of reports, each id, fence and progress.
-- Returns whether it is alive; of each held lease 0 (lost), 1 or who asked it to stop and why; and the claims that
-- the worker does not know: id and number.
@steady
@clock
local now, prefix, session = clock(ARGV[1]), ARGV[2], ARGV[3]
local key, started = prefix .. 'n:' .. session, whole(now)
local known = redis.call('HGET', key, 'started')
if not known and ARGV[4] ~= '1' then
    return {0, {}, {}}
end
local expires = whole(now + tonumber(ARGV[7]))
redis.call('HSET', key, 'name', ARGV[5], 'worker', ARGV[6], 'started', known or started, 'beat', whole(now),
    'expires', expires)
redis.call('ZADD', prefix .. 'sessions', expires, session)
local through, held = tonumber(ARGV[8]), tonumber(ARGV[9])
local fences, leases = {}, {}
for lease = 1, held do
    local id, fence = ARGV[8 + 2 * lease], ARGV[9 + 2 * lease]
    local found = redis.call('HMGET', prefix .. 't:' .. id, 's', 'f', 'x', 'B', 'Y')
    if found[1] ~= 'running' or found[2] ~= fence then
        leases[lease] = 0
    elseif found[3] then
        leases[lease] = {found[4], found[5]}
    else
        leases[lease] = 1
    end
    fences[id .. fence] = true
end
local at = 10 + 2 * held
for report = 1, tonumber(ARGV[at]) do
    local id, fence, progress = ARGV[at + 3 * report - 2], ARGV[at + 3 * report - 1], ARGV[at + 3 * report]
    local found = redis.call('HMGET', prefix .. 't:' .. id, 's', 'f')
    if found[1] == 'running' and found[2] == fence then
        redis.call('HSET', prefix .. 't:' .. id, 'g', progress)
    end
end
local unknown = {}
local claims = redis.call('HGETALL', prefix .. 'h:' .. session)
for position = 1, #claims, 2 do
    local id, number = claims[position], claims[position + 1]
    if tonumber(number) <= through then
        local fence = redis.call('HGET', prefix .. 't:' .. id, 'f') or ''
        if not fences[id .. fence] then
            unknown[#unknown + 1] = id
            unknown[#unknown + 1] = number
        end
    end
end
return {1, leases, unknown}
