-- Take over tasks of sessions that have expired, and forget those that hold none. ARGV: now, prefix, session, most
-- tasks. Returns rows and the time; -1 if the session is not alive.
@steady
@clock
@lease
local now, prefix, session, most = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
if not worker_of(prefix, session, now) then
    return -1
end
local rescued = {}
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'sessions', '-inf', whole(now), 'LIMIT', 0, 500)) do
    local held = prefix .. 'h:' .. expired
    if #rescued < most then
        for _, id in ipairs(redis.call('HRANDFIELD', held, most - #rescued)) do
            local key, row = prefix .. 't:' .. id, read(prefix, id)
            redis.call('HDEL', held, id)
            if row[AT.s] == 'running' and row[AT.S] == expired then
                row[AT.v] = whole(tonumber(row[AT.v]) + 1)
                row[AT.f] = whole(tonumber(row[AT.f]) + 1)
                row[AT.S] = session
                redis.call('HSET', key, 'v', row[AT.v], 'f', row[AT.f], 'S', session)
                redis.call('HSET', prefix .. 'h:' .. session, id, 0)
                rescued[#rescued + 1] = {id, row, redis.call('GET', prefix .. 'd:' .. id)}
            end
        end
    end
    if redis.call('EXISTS', held) == 0 then
        redis.call('DEL', prefix .. 'n:' .. expired)
        redis.call('ZREM', prefix .. 'sessions', expired)
    end
end
return {rescued, whole(now)}
