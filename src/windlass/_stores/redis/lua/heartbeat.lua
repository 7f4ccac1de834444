-- Renew or open a session, and store progress. ARGV: now, prefix, session, whether to open it, the worker's name and
-- description, the lease in microseconds, the highest claim number that has arrived, the number of held leases, each
-- id and fence, the number of reports, each id, fence and progress.
-- Returns whether it is alive; of each held lease 0 (lost), 1, or its row if it was asked to stop; and the claims that
-- the worker does not know: id and number; and the number of sessions.
@steady
@clock
@bulk
@memory
@row
local now, prefix, session = clock(ARGV[1]), ARGV[2], ARGV[3]
local key, started = prefix .. 'n:' .. session, whole(now)
local known = redis.call('HGET', key, 'started')
if not known and ARGV[4] ~= '1' then
    return {0, {}, {}, 0}
end
allow_full_memory()
local expires = whole(now + tonumber(ARGV[7]))
redis.call('HSET', key, 'name', ARGV[5], 'worker', ARGV[6], 'started', known or started, 'beat', whole(now),
    'expires', expires)
redis.call('ZADD', prefix .. 'sessions', expires, session)
local through, held = tonumber(ARGV[8]), tonumber(ARGV[9])
local ids, fences, leases = {}, {}, {}
for lease = 1, held do
    ids[lease] = ARGV[8 + 2 * lease]
end
for lease, row in ipairs(rows_of(prefix, ids)) do
    local state, fence, flags = state_of(row)
    if state ~= RUNNING or fence ~= tonumber(ARGV[9 + 2 * lease]) then
        leases[lease] = 0
    else
        leases[lease] = has(flags, CANCEL) and row or 1
    end
    fences[ids[lease] .. ' ' .. tonumber(ARGV[9 + 2 * lease])] = true
end
local at = 10 + 2 * held
for report = 1, tonumber(ARGV[at]) do
    local task, progress = prefix .. 't:' .. ARGV[at + 3 * report - 2], ARGV[at + 3 * report]
    local row = redis.call('GET', task)
    local state, fence = state_of(row)
    if state == RUNNING and fence == tonumber(ARGV[at + 3 * report - 1]) then
        redis.call('SET', task, with_progress(row, progress))
    end
end
local unknown, claims = {}, redis.call('HGETALL', prefix .. 'h:' .. session)
for position = 1, #claims, 2 do
    local id, number = claims[position], claims[position + 1]
    if tonumber(number) <= through then
        local _, fence = state_of(redis.call('GET', prefix .. 't:' .. id))
        if not fence or not fences[id .. ' ' .. fence] then
            unknown[#unknown + 1] = id
            unknown[#unknown + 1] = number
        end
    end
end
return {1, leases, unknown, redis.call('ZCOUNT', prefix .. 'sessions', '(0', '+inf')}
