-- Lease tasks to a session.
local LONG = 65 -- bytes: more than `hash-max-listpack-value`

-- The name of a live session's worker; nil if it is not alive.
local function worker_of(prefix, session, now)
    local expires = redis.call('ZSCORE', prefix .. 'sessions', session)
    if not expires or tonumber(expires) <= now then
        return nil
    end
    return redis.call('HGET', prefix .. 'n:' .. session, 'name') or ''
end

-- Collects members for one command per key.
local function batch(command)
    local pending, names = {}, {}
    return {
        members = function(key)
            local found = pending[key]
            if not found then
                found = {}
                pending[key] = found
                names[#names + 1] = key
            end
            return found
        end,
        flush = function()
            for _, key in ipairs(names) do
                in_parts(command, key, pending[key])
            end
        end
    }
end

-- Makes ready tasks running that are no longer in their sets of ready tasks. `done` must follow.
local function lessor(prefix, session, number, worker, now)
    local leaving, entering, groups = batch('ZREM'), batch('ZADD'), {}
    local written, held, named = {}, {}, {}
    -- A hash whose values are short is a list at first, which every HSET would search; a long value prevents that.
    local long = string.rep('0', LONG - #number) .. number
    local plain = struct.pack(LEASE, now, #session, #worker, 0, 0) .. session .. worker
    return {
        -- Returns the id, the row and the document of a task; nil if it has expired and never started, or is damaged.
        lease = function(id, row, permits)
            if not row or #row < SHORTEST then
                return nil
            end
            local version, fence, attempt, _, flags, due, group, before, changing, at =
                struct.unpack(NUMBERS, row)
            local name = string.sub(row, at, at + group - 1)
            if has(flags, EXPIRES) then
                if attempt == 0 and struct.unpack('>d', name) <= now then
                    return nil
                end
                name = string.sub(name, 9)
            end
            local lease = plain
            if permits ~= '' then
                lease = struct.pack(LEASE, now, #session, #worker, #permits, 0) .. session .. worker .. permits
            end
            local new = with_lease(row, lease, version + 1, fence + 1, attempt + 1, RUNNING, flags, due, group, before,
                changing, at)
            written[#written + 1] = prefix .. 't:' .. id
            written[#written + 1] = new
            held[#held + 1] = id
            held[#held + 1] = #held == 1 and long or number
            local sets = groups[name]
            if not sets then
                sets = {leaving.members(prefix .. 'g:ready\31' .. name), entering.members(prefix .. 'g:running\31' .. name)}
                groups[name] = sets
                named[#named + 1] = 'running\31' .. name
            end
            local left, entered = sets[1], sets[2]
            left[#left + 1] = id
            entered[#entered + 1] = due
            entered[#entered + 1] = id
            return {id, new, document_of(prefix, id, flags)}
        end,
        done = function()
            set_all(written)
            leaving.flush()
            entering.flush()
            in_parts('SADD', prefix .. 'groups', named)
            in_parts('HSET', prefix .. 'h:' .. session, held)
        end
    }
end
