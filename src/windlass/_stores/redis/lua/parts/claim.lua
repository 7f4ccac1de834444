-- Claim from queues without lanes or limits, lowest rank and id first over all of them. From `at`: session, claim
-- number, most tasks, the number of types to claim (-1: any) and those types, then the queues. Returns rows, or -1 if the
-- session is not alive; and 1 if it stopped looking, as too many had expired, else 0.
local EXAMINED = 500 -- tasks that one script looks at
local PASSED = 20000 -- tasks of other types that it passes over in a queue
local WINDOW = 500 -- tasks of which it looks for types at once

-- Returns a function that takes up to so many ids out of a queue.
local function from_one(key)
    return function(most)
        local ids = redis.call('ZRANGE', key, 0, most - 1)
        in_parts('ZREM', key, ids)
        return ids
    end
end

local function before(one, other)
    return one.rank < other.rank or (one.rank == other.rank and one.id < other.id)
end

-- Moves an element of a heap down to its place.
local function sink(heap, at)
    local moved, last = heap[at], #heap
    while 2 * at <= last do
        local child = 2 * at
        if child < last and before(heap[child + 1], heap[child]) then
            child = child + 1
        end
        if not before(heap[child], moved) then
            break
        end
        heap[at], at = heap[child], child
    end
    heap[at] = moved
end

-- Goes to the next task of a queue, reading up to so many if those it has read are taken. Returns false if none is left.
local function advance(queue, number, keep)
    while queue.next > #queue.heads do
        if not queue.more then
            return false
        end
        local ranked = redis.call('ZRANGE', queue.key, queue.passed, queue.passed + number - 1, 'WITHSCORES')
        queue.heads, queue.next, queue.more = ranked, 1, #ranked == 2 * number
        if keep then
            queue.heads = keep(ranked)
            queue.passed = queue.passed + (#ranked - #queue.heads) / 2
            queue.more = queue.more and queue.passed < PASSED
        end
    end
    queue.id, queue.rank = queue.heads[queue.next], tonumber(queue.heads[queue.next + 1])
    return true
end

-- The same over several queues, by rank: a heap of those that have tasks. Of thousands, few are taken from, so only the
-- first task of each is read. With `keep`, only tasks that it keeps are taken.
local function from_several(keys, most, keep)
    local heap, number = {}, #keys > most and 1 or most
    if keep then
        number, most = WINDOW, WINDOW
    end
    for _, key in ipairs(keys) do
        local queue = {key = key, heads = {}, next = 1, more = true, passed = 0}
        if advance(queue, number, keep) then
            heap[#heap + 1] = queue
        end
    end
    for at = math.floor(#heap / 2), 1, -1 do
        sink(heap, at)
    end
    return function(wanted)
        local ids, taken = {}, batch('ZREM')
        while #ids < wanted and #heap > 0 do
            local first = heap[1]
            ids[#ids + 1] = first.id
            local members = taken.members(first.key)
            members[#members + 1] = first.id
            first.next = first.next + 2
            if first.next > #first.heads then
                taken.flush()
                taken = batch('ZREM')
            end
            if not advance(first, most, keep) then
                heap[1] = heap[#heap]
                heap[#heap] = nil
            end
            if #heap > 0 then
                sink(heap, 1)
            end
        end
        taken.flush()
        return ids
    end
end

local function claim(at, prefix, now)
    local session, number, most = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local worker = worker_of(prefix, session, now)
    if not worker then
        return -1, 0
    end
    local types, keys, claimed, examined = tonumber(ARGV[at + 3]), {}, {}, 0
    for position = at + 4 + math.max(types, 0), #ARGV do
        keys[#keys + 1] = prefix .. 'r:' .. ARGV[position] .. '\31'
    end
    local keep = types >= 0 and sieve(prefix, {unpack(ARGV, at + 4, at + 3 + types)}) or nil
    local take = #keys == 1 and not keep and from_one(keys[1]) or from_several(keys, most, keep)
    local to = lessor(prefix, session, number, worker, now)
    while #claimed < most and examined < EXAMINED do
        local ids = take(math.min(most - #claimed, EXAMINED - examined))
        if #ids == 0 then
            break
        end
        for position, row in ipairs(rows_of(prefix, ids)) do
            claimed[#claimed + 1] = to.lease(ids[position], row, '')
        end
        examined = examined + #ids
    end
    to.done()
    return claimed, #claimed < most and examined >= EXAMINED and 1 or 0
end
