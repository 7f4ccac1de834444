-- Lease tasks to a session. A row is the fields of a task's hash, in this order.
local FIELDS = {@fields}
local AT = {}
for position, field in ipairs(FIELDS) do
    AT[field] = position
end

local function read(prefix, id)
    return redis.call('HMGET', prefix .. 't:' .. id, unpack(FIELDS))
end

-- Whether a task that has not started has expired.
local function is_expired(row, now)
    local expires = row[AT.e]
    return expires and tonumber(expires) <= now and (row[AT.a] or '0') == '0'
end

-- The name of a live session's worker; nil if it is not alive.
local function worker_of(prefix, session, now)
    local expires = redis.call('ZSCORE', prefix .. 'sessions', session)
    if not expires or tonumber(expires) <= now then
        return nil
    end
    return redis.call('HGET', prefix .. 'n:' .. session, 'name') or ''
end

-- Make a ready task running; it is no longer in its set of ready tasks. Returns the id, the row and the document.
local function lease(prefix, id, row, to, permits)
    local key = prefix .. 't:' .. id
    row[AT.v] = whole(tonumber(row[AT.v]) + 1)
    row[AT.f] = whole(tonumber(row[AT.f] or 0) + 1)
    row[AT.a] = whole(tonumber(row[AT.a] or 0) + 1)
    row[AT.s], row[AT.C], row[AT.S], row[AT.w] = 'running', to.at, to.session, to.worker
    redis.call('HSET', key, 'v', row[AT.v], 'f', row[AT.f], 'a', row[AT.a], 's', 'running', 'C', to.at,
        'S', to.session, 'w', to.worker)
    if row[AT.g] or row[AT.l] then
        redis.call('HDEL', key, 'g', 'l')
        row[AT.g], row[AT.l] = false, false
    end
    if permits ~= '' then
        row[AT.P] = permits
        redis.call('HSET', key, 'P', permits)
    end
    redis.call('HSET', prefix .. 'h:' .. to.session, id, to.number)
    local due = math.max(tonumber(row[AT.r]), tonumber(row[AT.c]))
    local group = '\31' .. row[AT.q]
    redis.call('ZREM', prefix .. 'g:ready' .. group, id)
    redis.call('ZADD', prefix .. 'g:running' .. group, due, id)
    redis.call('SADD', prefix .. 'groups', 'running' .. group)
    return {id, row, redis.call('GET', prefix .. 'd:' .. id)}
end
