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

-- Collects members for one command per key; few enough for `unpack`.
local function batch(command, most)
    local pending = {}
    local function flush(key)
        redis.call(command, key, unpack(pending[key]))
        pending[key] = nil
    end
    return {
        add = function(key, ...)
            local members = pending[key] or {}
            pending[key] = members
            for _, member in ipairs({...}) do
                members[#members + 1] = member
            end
            if #members >= most then
                flush(key)
            end
        end,
        flush = function()
            local keys = {}
            for key in pairs(pending) do
                keys[#keys + 1] = key
            end
            table.sort(keys)
            for _, key in ipairs(keys) do
                flush(key)
            end
        end
    }
end

-- Makes ready tasks running that are no longer in their sets of ready tasks. `done` must follow.
local function lessor(prefix, session, number, worker, now)
    local at, held = whole(now), prefix .. 'h:' .. session
    local leaving, entering, holding = batch('ZREM', 500), batch('ZADD', 500), batch('HSET', 500)
    local groups = {}
    return {
        -- Returns the id, the row and the document of a task.
        lease = function(id, row, permits)
            local key = prefix .. 't:' .. id
            row[AT.v] = whole(tonumber(row[AT.v]) + 1)
            row[AT.f] = whole(tonumber(row[AT.f] or 0) + 1)
            row[AT.a] = whole(tonumber(row[AT.a] or 0) + 1)
            row[AT.s], row[AT.C], row[AT.S], row[AT.w] = 'running', at, session, worker
            redis.call('HSET', key, 'v', row[AT.v], 'f', row[AT.f], 'a', row[AT.a], 's', 'running', 'C', at,
                'S', session, 'w', worker)
            if row[AT.g] or row[AT.l] then
                redis.call('HDEL', key, 'g', 'l')
                row[AT.g], row[AT.l] = false, false
            end
            if permits ~= '' then
                row[AT.P] = permits
                redis.call('HSET', key, 'P', permits)
            end
            local due = math.max(tonumber(row[AT.r]), tonumber(row[AT.c]))
            local group = '\31' .. row[AT.q]
            leaving.add(prefix .. 'g:ready' .. group, id)
            entering.add(prefix .. 'g:running' .. group, whole(due), id)
            holding.add(held, id, number)
            if not groups[group] then
                groups[group] = true
                redis.call('SADD', prefix .. 'groups', 'running' .. group)
            end
            return {id, row, redis.call('GET', prefix .. 'd:' .. id)}
        end,
        done = function()
            leaving.flush()
            entering.flush()
            holding.flush()
        end
    }
end
