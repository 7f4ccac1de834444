-- The row of a task: numbers of fixed width, then when it expires if it does, the group, the lease, and what only clients read. The lease of a task
-- that was never claimed is empty; else it is numbers, the session, the worker, the permits and the progress. See rows.py.
local NUMBERS, SHORTEST = '@numbers', struct.size('@numbers')
local LEASE, SHORTEST_LEASE = '@lease_numbers', struct.size('@lease_numbers')
local RUNNING, COMPLETED, CANCEL, OUTSIDE, EXPIRES = 'R', 'c', 1, 2, 8 -- states, and flags

local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

-- Read the rows of tasks; false for those that do not exist.
local function rows_of(prefix, ids)
    local rows = {}
    for first = 1, #ids, MOST do
        local keys = {}
        for position = first, math.min(first + MOST - 1, #ids) do
            keys[#keys + 1] = prefix .. 't:' .. ids[position]
        end
        for _, row in ipairs(redis.call('MGET', unpack(keys))) do
            rows[#rows + 1] = row
        end
    end
    return rows
end

-- The document of a task if it has a key of its own, else nil.
local function document_of(prefix, id, flags)
    return has(flags, OUTSIDE) and redis.call('GET', prefix .. 'd:' .. id) or nil
end

-- State, fence and flags of a task; nil if it does not exist or is damaged.
local function state_of(row)
    if not row or #row < SHORTEST then
        return nil
    end
    local _, fence, _, state, flags = struct.unpack(NUMBERS, row)
    return state, fence, flags
end

-- The row with another lease: what comes before it in `row`, as `struct.unpack` returned it, and after it.
local function with_lease(row, new, version, fence, attempt, state, flags, due, group, old, changing, at)
    return struct.pack(NUMBERS, version, fence, attempt, state, flags, due, group, #new, changing) ..
        string.sub(row, at, at + group - 1) .. new .. string.sub(row, at + group + old)
end

-- The session of a row, and the row after a session took it over; nil if it is damaged.
local function taken_over(row, by)
    local version, fence, attempt, state, flags, due, group, lease, changing, at = struct.unpack(NUMBERS, row)
    if #row < at + group + SHORTEST_LEASE - 1 then
        return nil
    end
    local claimed, session, worker, permits, progress, names = struct.unpack(LEASE, row, at + group)
    local new = struct.pack(LEASE, claimed, #by, worker, permits, progress) .. by ..
        string.sub(row, names + session, at + group + lease - 1)
    return string.sub(row, names, names + session - 1),
        with_lease(row, new, version + 1, fence + 1, attempt, state, flags, due, group, lease, changing, at)
end

-- The row with another progress; as it is if it is damaged.
local function with_progress(row, progress)
    local version, fence, attempt, state, flags, due, group, lease, changing, at = struct.unpack(NUMBERS, row)
    if #row < at + group + SHORTEST_LEASE - 1 then
        return row
    end
    local claimed, session, worker, permits, _, names = struct.unpack(LEASE, row, at + group)
    local new = struct.pack(LEASE, claimed, session, worker, permits, #progress) ..
        string.sub(row, names, names + session + worker + permits - 1) .. progress
    return with_lease(row, new, version + 1, fence, attempt, state, flags, due, group, lease, changing, at)
end

-- The session of a running task that does not expire, its row after it completed, its group, when it was due, and the
-- permits that it held.
local function completed(row, new)
    local version, fence, attempt, _, flags, due, group, lease, changing, at = struct.unpack(NUMBERS, row)
    local claimed, session, worker, permits, progress, names = struct.unpack(LEASE, row, at + group)
    local name, held = string.sub(row, at, at + group - 1), names + session + worker
    local left = struct.pack(LEASE, claimed, 0, worker, 0, progress) .. string.sub(row, names + session, held - 1) ..
        string.sub(row, held + permits, at + group + lease - 1)
    return string.sub(row, names, names + session - 1),
        struct.pack(NUMBERS, version + 1, fence, attempt, COMPLETED, flags, due, group, #left, #new) .. name .. left ..
            new .. string.sub(row, at + group + lease + changing),
        name, due, string.sub(row, held, held + permits - 1)
end
