-- Claim from queues without lanes or limits, lowest rank and id first over all of them. From `at`: session, claim
-- number, most tasks, then the queues. Returns rows, or -1 if the session is not alive; and 1 if it stopped looking, as
-- too many had expired, else 0.
local EXAMINED = 500 -- tasks that one script looks at

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
local function advance(queue, number)
    if queue.next > #queue.heads then
        if not queue.more then
            return false
        end
        queue.heads, queue.next = redis.call('ZRANGE', queue.key, 0, number - 1, 'WITHSCORES'), 1
        queue.more = #queue.heads == 2 * number
    end
    queue.id, queue.rank = queue.heads[queue.next], tonumber(queue.heads[queue.next + 1])
    return queue.id ~= nil
end

-- The same over several queues, by rank: a heap of those that have tasks. Of thousands, few are taken from, so only the
-- first task of each is read.
local function from_several(keys, most)
    local heap, number = {}, #keys > most and 1 or most
    for _, key in ipairs(keys) do
        local queue = {key = key, heads = {}, next = 1, more = true}
        if advance(queue, number) then
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
            if not advance(first, most) then
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
    local keys, claimed, examined = {}, {}, 0
    for position = at + 3, #ARGV do
        keys[#keys + 1] = prefix .. 'r:' .. ARGV[position] .. '\31'
    end
    local take = #keys == 1 and from_one(keys[1]) or from_several(keys, most)
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
