-- Take over tasks of sessions that have expired, and forget those that hold none. ARGV: now, prefix, session, most
-- tasks. Returns rows and the time; -1 if the session is not alive.
@steady
@clock
@bulk
@row
@lease
local now, prefix, session, most = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
if not worker_of(prefix, session, now) then
    return -1
end
local rescued = {}
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'sessions', '-inf', whole(now), 'LIMIT', 0, 500)) do
    local held = prefix .. 'h:' .. expired
    if #rescued < most then
        local ids = redis.call('HRANDFIELD', held, most - #rescued)
        for position, row in ipairs(rows_of(prefix, ids)) do
            local id = ids[position]
            local state, _, flags = state_of(row)
            redis.call('HDEL', held, id)
            if state == RUNNING then
                local holder, new = taken_over(row, session)
                if holder == expired then
                    redis.call('SET', prefix .. 't:' .. id, new)
                    redis.call('HSET', prefix .. 'h:' .. session, id, 0)
                    rescued[#rescued + 1] = {id, new, document_of(prefix, id, flags)}
                end
            end
        end
    end
    if redis.call('EXISTS', held) == 0 then
        redis.call('DEL', prefix .. 'n:' .. expired)
        redis.call('ZREM', prefix .. 'sessions', expired)
    end
end
return {rescued, whole(now)}
